// gpucast export FILE --to snapshot -o PATH: what other tools read.

#include <fmt/core.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/base/alloc_conf.h"
#include "src/cli/load_trace.h"
#include "src/cli/run_capture.h"
#include "src/cli/subcommand.h"
#include "src/lifetime/lifetime.h"
#include "src/report/snapshot_export.h"

namespace gpucast::cli {
namespace {

struct Options {
  std::string file, to, output, gpu, torch_version;
  std::optional<int> device;
  bool force = false;
};

int export_file(const Options& options) {
  CaptureFile target(options.output, options.force);  // first: it may be refused
  check_torch_version(options.torch_version);
  OrchestrateOptions profile;
  profile.torch = options.torch_version;
  Trace trace = load_trace(options.file, options.device, options.gpu.empty() ? std::nullopt : std::optional(options.gpu), profile);
  const AllocConf conf = parse_alloc_conf(trace.process.alloc_conf, trace.process.torch);
  const bool is_snapshot = trace.header.source == "snapshot";
  const StartState start = is_snapshot ? reconstruct_start(trace.events, trace.end_segments, conf, &trace.problems) : StartState();
  const Lifetimes lifetimes = follow_blocks(trace.events, conf, &trace.problems, start);
  const Attribution attribution = attribute(trace, lifetimes, &trace.problems);
  {
    std::ofstream out(target.path(), std::ios::binary);
    if (!out) throw Error("the output cannot be written", target.path(), "choose another folder");
    write_snapshot(trace, lifetimes, attribution, out);
  }
  fmt::print(stderr, "gpucast: the snapshot is in {}; look at it with https://pytorch.org/memory_viz or python -m torch.cuda._memory_viz\n",
             target.keep());
  return kExitYes;
}

}  // namespace

void declare_export(CLI::App& app, std::function<int()>& action) {
  auto options = std::make_shared<Options>();
  app.add_option("FILE", options->file,
                 "a capture (*.gpucast), a memory snapshot of PyTorch (*.pickle), or a PyTorch Profiler trace (*.json)")
      ->required();
  app.add_option("--to", options->to, "snapshot: a memory snapshot of PyTorch, for memory_viz")
      ->required()
      ->check(CLI::IsMember({"snapshot"}));
  app.add_option("-o,--output", options->output, "the file to write")->required();
  app.add_option("--device", options->device, "which GPU of a snapshot that holds several");
  app.add_option("--gpu", options->gpu, "the card that a profiler trace is predicted for");
  app.add_option("--torch-version", options->torch_version,
                 "the PyTorch release that a profiler trace is predicted for, where it does not say");
  app.add_flag("--force", options->force, "overwrite the output file");
  app.callback([options, &action] { action = [options] { return export_file(*options); }; });
}

}  // namespace gpucast::cli
