// Reads a file that is a capture, a memory snapshot or a profiler trace.
#pragma once

#include <optional>
#include <string>

#include "gpucast/trace.h"
#include "src/cli/arguments.h"
#include "src/orchestrate/rules.h"

namespace gpucast::cli {

// `gpu`: the card that a profiler trace is predicted for; unset: the default one. `device`: see read_trace(). Throws Error.
Trace load_trace(const std::string& path, std::optional<int> device, const std::optional<std::string>& gpu,
                 const OrchestrateOptions& profile_options = {});

// The file that a subcommand reads, and the options for reading it.
struct Input {
  std::string path, gpu;  // gpu: "" when no card was named
  std::optional<int> device;
  OrchestrateOptions profile;

  std::optional<std::string> card() const { return gpu.empty() ? std::nullopt : std::optional(gpu); }
  Trace load() const;  // same as load_trace(); also throws for an invalid --torch-version
};

// Declares FILE, --gpu, --device and --torch-version.
void declare_input(Arguments& arguments, Input* input);

// Throws Error unless `release` is "" or looks like a PyTorch release: "2.6.0".
void check_torch_version(const std::string& release);

}  // namespace gpucast::cli
