// The command line: parse, run one subcommand, turn what was thrown into a message and an exit code.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/cli/subcommand.h"
#include "version.h"

namespace {

using gpucast::cli::Subcommand;

const Subcommand kSubcommands[] = {
    {"run", "run a training command on a virtual GPU and report the memory it takes", gpucast::cli::declare_run},
    {"batch", "run many training commands, one job a line, and report each as soon as it is there", gpucast::cli::declare_batch},
    {"profile", "run a training command on the CPU under PyTorch's profiler and keep the trace", gpucast::cli::declare_profile},
    {"analyze", "report again from a capture file", gpucast::cli::declare_analyze},
    {"breakdown", "where the memory goes: by module, operator, phase, step or tensor", gpucast::cli::declare_breakdown},
    {"explain", "say in plain words why it takes this memory, and what would reduce it", gpucast::cli::declare_explain},
    {"replay", "replay a recorded history with other allocator settings, or on a smaller card", gpucast::cli::declare_replay},
    {"export", "write a capture in the form that other tools read", gpucast::cli::declare_export},
    {"diff", "what grew from one run to another, with a verdict for CI", gpucast::cli::declare_diff},
    {"gpus", "list the cards gpucast knows", gpucast::cli::declare_gpus},
    {"doctor", "check that this environment is usable", gpucast::cli::declare_doctor},
};

void print_error(const std::string& what, const std::string& where, const std::string& hint) {
  fmt::print(stderr, "gpucast: {}\n", what);
  if (!where.empty()) fmt::print(stderr, "  where: {}\n", where);
  if (!hint.empty()) fmt::print(stderr, "  to do: {}\n", hint);
}

// CLI11 says what is wrong; we add what was probably meant.
int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string hint = "gpucast --help";
  const CLI::App* at = &app;
  for (const auto* sub : app.get_subcommands()) at = sub;
  if (at != &app) hint = fmt::format("gpucast {} --help", at->get_name());
  if (at == &app && argc > 1) {
    std::vector<std::string> names;
    for (const auto& sub : kSubcommands) names.emplace_back(sub.name);
    if (auto near = gpucast::did_you_mean(argv[1], names)) hint = fmt::format("did you mean 'gpucast {}'?", *near);
  } else {
    std::vector<std::string> names;
    for (const auto* option : at->get_options()) {
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    }
    for (int i = 2; i < argc && std::string(argv[i]) != "--"; ++i) {
      const std::string typed = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
      if (typed.rfind("--", 0) != 0 || std::find(names.begin(), names.end(), typed) != names.end()) continue;
      if (auto near = gpucast::did_you_mean(typed, names)) hint = fmt::format("did you mean '{}'?", *near);
    }
  }
  print_error(error.what(), "", hint);
  return gpucast::kExitFailed;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): only printing the error itself could still throw
int main(int argc, char** argv) {
  CLI::App app{"What a PyTorch training job will do on a GPU, before it touches one.", "gpucast"};
  app.set_version_flag("--version", std::string("gpucast ") + kGpucastVersion);
  app.require_subcommand(1);
  std::function<int()> action;
  for (const Subcommand& sub : kSubcommands) {
    gpucast::cli::Arguments arguments(*app.add_subcommand(sub.name, sub.help), action);
    sub.declare(arguments);
  }
  try {
    app.parse(argc, argv);
    const int code = action();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw gpucast::Error("cannot write the result to standard output");
    return code;
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, argc, argv);
  } catch (const gpucast::Error& error) {
    print_error(error.what(), error.where, error.hint);
  } catch (const std::exception& error) {
    print_error(fmt::format("internal error: {}", error.what()), "", "please report this with the command you typed");
  }
  return gpucast::kExitFailed;
}
