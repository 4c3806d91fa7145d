// gpucast analyze FILE: prints the same report again from a capture, without PyTorch; or from a memory snapshot or a profiler trace.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/predict.h"
#include "gpucast/profile.h"
#include "src/cli/load_trace.h"
#include "src/cli/report_capture.h"
#include "src/cli/subcommand.h"

namespace gpucast::cli {

void declare_analyze(Arguments& arguments) {
  struct Options {
    Input input;
    std::string format = "text";
    double confidence = kDefaultConfidence;
    int64_t steps_total = 0;
  };
  auto options = std::make_shared<Options>();
  declare_input(arguments, &options->input);
  declare_confidence(arguments, &options->confidence);
  declare_steps_total(arguments, &options->steps_total);
  arguments.option("--format", &options->format, "text or json").one_of({"text", "json"}).shows_default();
  const std::string group = "Profiler traces";
  const auto method =
      arguments
          .option("--method", &options->input.profile.method,
                  "how a CPU trace is turned into what a GPU allocates: gpucast, or as in a paper: xmem, veritasest, dnnmem")
          .shows_default()
          .group(group);
  const auto without = arguments.option("--without", &options->input.profile.without, "leave a rule out (may be repeated)").group(group);
  const auto batch =
      arguments.option("--batch", &options->input.profile.batch_size, "predict for this batch size instead of the traced one")
          .positive()
          .group(group);
  const auto traced =
      arguments.option("--traced-batch", &options->input.profile.traced_batch_size, "the traced batch size, where the trace does not say")
          .positive()
          .group(group);
  const auto dtype =
      arguments.option("--dtype", &options->input.profile.dtype, "predict the model in this type instead of fp32, for which the trace is")
          .one_of({"bf16", "fp16"})
          .group(group);
  arguments.flag("--amp", &options->input.profile.amp, "with --dtype: under torch.autocast, the parameters in fp32")
      .needs(dtype)
      .group(group);
  arguments.action([options, for_profiles = std::vector<Argument>{method, without, batch, traced, dtype}] {
    const bool profile_only =
        !options->input.profile.torch.empty() ||
        std::any_of(for_profiles.begin(), for_profiles.end(), [](const Argument& argument) { return argument.given(); });
    if (profile_only && !looks_like_profile(options->input.path)) {
      throw Error("an option was given that is for profiler traces only, and this is none", options->input.path,
                  "leave out --method, --without, --batch, --traced-batch, --torch-version, --dtype");
    }
    check_confidence(options->confidence);
    return report_trace(options->input.load(), options->input.card(), options->confidence,
                        options->format == "json" ? Format::json : Format::text, true, options->steps_total);
  });
}

}  // namespace gpucast::cli
