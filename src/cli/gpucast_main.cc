// The command line: runs one subcommand, and turns an exception into a message and an exit code.

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "gpucast/error.h"
#include "src/cli/subcommand.h"

namespace {

using gpucast::cli::Subcommand;

const Subcommand kSubcommands[] = {
    {"run", "run a training command on a virtual GPU and report the memory it takes", gpucast::cli::declare_run},
    {"batch", "run many training commands, one job a line, and report each as soon as it is there", gpucast::cli::declare_batch},
    {"profile", "run a training command on the CPU under PyTorch's profiler and keep the trace", gpucast::cli::declare_profile},
    {"analyze", "report again from a capture file", gpucast::cli::declare_analyze},
    {"breakdown", "where the memory goes: by module, operator, phase, step or tensor", gpucast::cli::declare_breakdown},
    {"explain", "say in plain words why it takes this memory, and what would reduce it", gpucast::cli::declare_explain},
    {"advise", "what to change so that a job fits a card and is fast on it", gpucast::cli::declare_advise},
    {"replay", "replay a recorded history with other allocator settings, or on a smaller card", gpucast::cli::declare_replay},
    {"export", "write a capture in the form that other tools read", gpucast::cli::declare_export},
    {"diff", "what grew from one run to another, with a verdict for CI", gpucast::cli::declare_diff},
    {"check", "run the jobs of gpucast.toml, and say which break their limits", gpucast::cli::declare_check},
    {"time", "how long a step takes, on cards you do not have", gpucast::cli::declare_time},
    {"occupancy", "how full a step makes a GPU, kernel by kernel", gpucast::cli::declare_occupancy},
    {"pack", "who can share a card, and when a queue of jobs is done", gpucast::cli::declare_pack},
    {"fit", "the largest batch, or other value, that fits each card", gpucast::cli::declare_fit},
    {"sweep", "run many cases of a script, on this machine or a Ray cluster, and compare them", gpucast::cli::declare_sweep},
    {"plan", "say which number of cards, and which split of the model over them", gpucast::cli::declare_plan},
    {"model", "what training or serving a known model needs, without a script", gpucast::cli::declare_model},
    {"gpus", "list the cards gpucast knows", gpucast::cli::declare_gpus},
    {"machines", "list the machines gpucast knows: cards, links, network", gpucast::cli::declare_machines},
    {"doctor", "check that this environment is usable", gpucast::cli::declare_doctor},
};

void print(const gpucast::Error& error) {
  fmt::print(stderr, "gpucast: {}\n", error.what());
  if (!error.where.empty()) fmt::print(stderr, "  where: {}\n", error.where);
  if (!error.hint.empty()) fmt::print(stderr, "  to do: {}\n", error.hint);
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): only printing the error itself could still throw
int main(int argc, char** argv) {
  try {
    const int code = gpucast::cli::run_command_line(kSubcommands, argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw gpucast::Error("cannot write the result to standard output");
    return code;
  } catch (const gpucast::Error& error) {
    print(error);
  } catch (const std::exception& error) {
    print(gpucast::Error(fmt::format("internal error: {}", error.what()), "", "please report this with the command you typed"));
  }
  return gpucast::kExitFailed;
}
