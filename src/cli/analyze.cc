// gpucast analyze FILE: the same report again from a capture, without PyTorch; from a memory snapshot; from a profiler trace.

#include <memory>

#include "gpucast/error.h"
#include "gpucast/profile.h"
#include "src/cli/load_trace.h"
#include "src/cli/report_capture.h"
#include "src/cli/subcommand.h"

namespace gpucast::cli {

void declare_analyze(CLI::App& app, std::function<int()>& action) {
  struct Options {
    Input input;
    std::string format = "text";
    bool profile_only = false;  // an option was given that only a profiler trace knows
  };
  auto options = std::make_shared<Options>();
  declare_input(app, &options->input);
  app.add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  const std::string group = "Profiler traces";
  const auto method =
      app.add_option("--method", options->input.profile.method,
                     "how a CPU trace is turned into what a GPU allocates: gpucast, or as in a paper: xmem, veritasest, dnnmem")
          ->capture_default_str()
          ->group(group);
  const auto without = app.add_option("--without", options->input.profile.without, "leave a rule out (may be repeated)")->group(group);
  const auto batch = app.add_option("--batch", options->input.profile.batch_size, "predict for this batch size instead of the traced one")
                         ->check(CLI::PositiveNumber)
                         ->group(group);
  const auto traced =
      app.add_option("--traced-batch", options->input.profile.traced_batch_size, "the traced batch size, where the trace does not say")
          ->check(CLI::PositiveNumber)
          ->group(group);
  const auto dtype =
      app.add_option("--dtype", options->input.profile.dtype, "predict the model in this type instead of fp32, for which the trace is")
          ->check(CLI::IsMember({"bf16", "fp16"}))
          ->group(group);
  app.add_flag("--amp", options->input.profile.amp, "with --dtype: under torch.autocast, the parameters in fp32")
      ->needs(dtype)
      ->group(group);
  app.callback([options, method, without, batch, traced, dtype, torch = app.get_option("--torch-version"), &action] {
    options->profile_only = dtype->count() + method->count() + without->count() + batch->count() + traced->count() + torch->count() > 0;
    action = [options] {
      const Format format = options->format == "json" ? Format::json : Format::text;
      if (options->profile_only && !looks_like_profile(options->input.path)) {
        throw Error("an option was given that is for profiler traces only, and this is none", options->input.path,
                    "leave out --method, --without, --batch, --traced-batch, --torch-version, --dtype");
      }
      return report_trace(options->input.load(), options->input.card(), format, true);
    };
  });
}

}  // namespace gpucast::cli
