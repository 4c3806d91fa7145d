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
    std::string file, gpu, format = "text";
    std::optional<int> device;
    OrchestrateOptions profile;
    bool profile_only = false;  // an option was given that only a profiler trace knows
  };
  auto options = std::make_shared<Options>();
  app.add_option("FILE", options->file,
                 "a capture (*.gpucast), a memory snapshot of PyTorch (*.pickle), or a PyTorch Profiler trace (*.json, *.json.gz)")
      ->required();
  app.add_option("--gpu", options->gpu, "the card to judge by (see `gpucast gpus`); without it the capture's own");
  app.add_option("--device", options->device, "which GPU of a snapshot that holds several");
  app.add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  const std::string group = "Profiler traces";
  const auto method =
      app.add_option("--method", options->profile.method,
                     "how a CPU trace is turned into what a GPU allocates: gpucast, or as in a paper: xmem, veritasest, dnnmem")
          ->capture_default_str()
          ->group(group);
  const auto without = app.add_option("--without", options->profile.without, "leave a rule out (may be repeated)")->group(group);
  const auto batch = app.add_option("--batch", options->profile.batch_size, "predict for this batch size instead of the traced one")
                         ->check(CLI::PositiveNumber)
                         ->group(group);
  const auto traced =
      app.add_option("--traced-batch", options->profile.traced_batch_size, "the traced batch size, where the trace does not say")
          ->check(CLI::PositiveNumber)
          ->group(group);
  const auto torch =
      app.add_option("--torch-version", options->profile.torch, "the PyTorch release to predict for, where the trace does not say: 2.6.0")
          ->group(group);
  const auto dtype =
      app.add_option("--dtype", options->profile.dtype, "predict the model in this type instead of fp32, for which the trace is")
          ->check(CLI::IsMember({"bf16", "fp16"}))
          ->group(group);
  app.add_flag("--amp", options->profile.amp, "with --dtype: under torch.autocast, the parameters in fp32")->needs(dtype)->group(group);
  app.callback([options, method, without, batch, traced, torch, dtype, &action] {
    options->profile_only = dtype->count() + method->count() + without->count() + batch->count() + traced->count() + torch->count() > 0;
    action = [options] {
      const std::optional<std::string> gpu = options->gpu.empty() ? std::nullopt : std::optional(options->gpu);
      const Format format = options->format == "json" ? Format::json : Format::text;
      if (options->profile_only && !looks_like_profile(options->file)) {
        throw Error("an option was given that is for profiler traces only, and this is none", options->file,
                    "leave out --method, --without, --batch, --traced-batch, --torch-version, --dtype");
      }
      check_torch_version(options->profile.torch);
      return report_trace(load_trace(options->file, options->device, gpu, options->profile), gpu, format, true);
    };
  });
}

}  // namespace gpucast::cli
