// gpucast analyze FILE: the same report again from a capture, without PyTorch; or a report from a memory snapshot.

#include <memory>

#include "src/cli/report_capture.h"
#include "src/cli/subcommand.h"

namespace gpucast::cli {

void declare_analyze(CLI::App& app, std::function<int()>& action) {
  struct Options {
    std::string file, gpu, format = "text";
    std::optional<int> device;
  };
  auto options = std::make_shared<Options>();
  app.add_option("FILE", options->file, "a capture (*.gpucast), or a memory snapshot of PyTorch (*.pickle)")->required();
  app.add_option("--gpu", options->gpu, "the card to judge by (see `gpucast gpus`); without it the capture's own");
  app.add_option("--device", options->device, "which GPU of a snapshot that holds several");
  app.add_option("--format", options->format, "text or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  app.callback([options, &action] {
    action = [options] {
      const std::optional<std::string> gpu = options->gpu.empty() ? std::nullopt : std::optional(options->gpu);
      return report_capture(options->file, gpu, options->format == "json" ? Format::json : Format::text, true, options->device);
    };
  });
}

}  // namespace gpucast::cli
