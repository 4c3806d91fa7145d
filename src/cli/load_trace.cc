#include "src/cli/load_trace.h"

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/profile.h"
#include "src/orchestrate/trace_from_profile.h"

namespace gpucast::cli {

Trace load_trace(const std::string& path, std::optional<int> device, const std::optional<std::string>& gpu,
                 const OrchestrateOptions& profile_options) {
  if (!looks_like_profile(path)) return read_trace(path, device);
  if (device) throw Error("--device was given, and this is a profiler trace", path, "leave --device out");
  return trace_from_profile(read_profile(path), find_gpu(gpu.value_or(kDefaultGpu)), profile_options);
}

Trace Input::load() const {
  check_torch_version(profile.torch);
  return load_trace(path, device, card(), profile);
}

void declare_input(Arguments& arguments, Input* input) {
  arguments
      .option("FILE", &input->path,
              "a capture (*.gpucast), a memory snapshot of PyTorch (*.pickle), or a PyTorch Profiler trace (*.json, *.json.gz)")
      .required();
  arguments.option("--gpu", &input->gpu, "the card to judge by (see `gpucast gpus`); without it the capture's own");
  arguments.option("--device", &input->device, "which GPU of a snapshot that holds several");
  arguments.option("--torch-version", &input->profile.torch,
                   "the PyTorch release that a profiler trace is predicted for, where it does not say: 2.6.0");
}

void check_torch_version(const std::string& release) {
  const size_t dot = release.find('.');
  const auto digit = [&](size_t at) { return at < release.size() && release[at] >= '0' && release[at] <= '9'; };
  if (release.empty() || (digit(0) && dot != std::string::npos && digit(dot + 1))) return;
  throw Error("'" + release + "' is no release of PyTorch", "--torch-version", "write it as PyTorch does: --torch-version 2.6.0");
}

}  // namespace gpucast::cli
