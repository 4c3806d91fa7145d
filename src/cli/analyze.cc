// gpucast analyze FILE: the same report again from a capture, without PyTorch; from a memory snapshot; from a profiler trace.

#include <memory>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/profile.h"
#include "src/cli/report_capture.h"
#include "src/cli/subcommand.h"
#include "src/predict/trace_from_profile.h"

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
  const auto method = app.add_option("--method", options->profile.method, "how a CPU trace is turned into what a GPU allocates")
                          ->check(CLI::IsMember({"gpucast", "xmem"}))
                          ->capture_default_str()
                          ->group(group);
  const auto without = app.add_option("--without", options->profile.without, "leave a rule out (may be repeated)")->group(group);
  app.callback([options, method, without, &action] {
    options->profile_only = method->count() > 0 || without->count() > 0;
    action = [options] {
      const std::optional<std::string> gpu = options->gpu.empty() ? std::nullopt : std::optional(options->gpu);
      const Format format = options->format == "json" ? Format::json : Format::text;
      if (looks_like_profile(options->file)) {
        const Gpu& card = find_gpu(gpu.value_or(kDefaultGpu));
        return report_trace(trace_from_profile(read_profile(options->file), card, options->profile), gpu, format, true);
      }
      if (options->profile_only) {
        throw Error("--method and --without are for profiler traces, and this is none", options->file, "leave them out");
      }
      return report_capture(options->file, gpu, format, true, options->device);
    };
  });
}

}  // namespace gpucast::cli
