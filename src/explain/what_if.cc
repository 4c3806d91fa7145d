#include "src/explain/what_if.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/what_if.h"
#include "src/base/batch_option.h"
#include "src/base/to_number.h"

namespace gpucast {
namespace {

std::string with_argument(const WhatIfKind& kind) {
  return *kind.argument == '\0' ? std::string(kind.name) : fmt::format("{}:{}", kind.name, kind.argument);
}

}  // namespace

const std::vector<WhatIfKind>& what_if_kinds() {
  static const std::vector<WhatIfKind> kKinds = {
      {"set-to-none", "", "zero_grad sets gradients to None"},
      {"no-foreach", "", "optimizers with foreach and fused off"},
      {kHalfBatch, "", "half the batch: the command's batch option, else of each DataLoader"},
      {"batch", "N", "N as the batch size of the first DataLoader, and of others with the same"},
      {"checkpoint", "MODULE", "modules of this class or path recomputed in backward"},
      {"bf16", "", "forward and loss under autocast with bfloat16"},
      {kMaxLength, "N", "each batch of texts padded to N tokens"},
  };
  return kKinds;
}

void check_what_if(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  std::vector<std::string> names;
  std::string all;
  for (const WhatIfKind& known : what_if_kinds()) {
    const bool takes_argument = *known.argument != '\0';
    if (kind == known.name) {
      const bool has_argument = colon != std::string::npos && colon + 1 < name.size();
      const bool takes_number = std::string_view(known.argument) == "N";
      const bool good = !takes_number || (has_argument && to_number<int64_t>(name.substr(colon + 1)).value_or(0) > 0);
      if (good && has_argument == takes_argument && (takes_argument || colon == std::string::npos)) return;
      throw Error(takes_number     ? fmt::format("the what-if '{}' must have a whole number above 0", kind)
                  : takes_argument ? fmt::format("the what-if '{}' must name modules", kind)
                                   : fmt::format("the what-if '{}' takes nothing after its name", kind),
                  "--what-if " + name, fmt::format("write --what-if {}", with_argument(known)));
    }
    names.emplace_back(known.name);
    all += (all.empty() ? "" : ", ") + with_argument(known);
  }
  const auto near = did_you_mean(kind, names);
  throw Error(fmt::format("there is no what-if '{}'", kind), "--what-if " + name,
              near ? fmt::format("did you mean {}? There are {}", *near, all) : "there are " + all);
}

std::optional<HalvedCommand> halve_batch(const std::vector<std::string>& command) {
  HalvedCommand out{command, ""};
  const auto halved = [&](std::string_view option, std::string_view text) -> std::string {
    const auto number = to_number<int64_t>(text);
    if (!number || *number < 2) return "";
    out.did += fmt::format("{}{} {} became {}", out.did.empty() ? "" : ", ", option, *number, *number / 2);
    return std::to_string(*number / 2);
  };
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    const size_t equals = word.find('=');
    if (equals != std::string::npos) {
      const std::string option = word.substr(0, equals);
      const std::string half = is_batch_word(option) ? halved(option, std::string_view(word).substr(equals + 1)) : "";
      if (!half.empty()) out.command[i] = fmt::format("{}={}", option, half);
    } else if (i + 1 < command.size() && is_batch_word(word)) {
      const std::string half = halved(word, command[i + 1]);
      if (!half.empty()) out.command[i + 1] = half;
    }
  }
  if (out.did.empty()) return std::nullopt;
  return out;
}

}  // namespace gpucast
