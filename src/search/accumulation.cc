#include "src/search/accumulation.h"

#include "gpucast/error.h"
#include "src/base/batch_option.h"
#include "src/base/to_number.h"
#include "src/search/command_option.h"
#include "src/search/script_options.h"

namespace gpucast::search {

Accumulation parse_accumulation(const std::string& text, const std::vector<std::string>& command, const std::string& folder) {
  const size_t equals = text.find('=');
  const auto batch = to_number<int64_t>(text.substr(0, equals));
  if (!batch || *batch < 1)
    throw Error("the global batch must be a whole number above 0", "--accumulate " + text, "write --accumulate 256, or 256=--accum");
  if (equals != std::string::npos) return {*batch, text.substr(equals + 1)};
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string option = command[i].substr(0, command[i].find('='));
    if (is_accumulation_word(option)) return {*batch, option};
  }
  for (const std::string& option : declared_options(command, folder)) {
    if (is_accumulation_word(option)) return {*batch, option};
  }
  throw Error("the script's option for gradient accumulation is not known", "--accumulate " + text,
              "name it: --accumulate 256=--gradient-accumulation-steps");
}

std::vector<std::string> with_accumulation(const std::vector<std::string>& command, const Accumulation& accumulation, int64_t batch) {
  return with_option(command, accumulation.option, std::to_string(accumulation.global_batch / batch));
}

}  // namespace gpucast::search
