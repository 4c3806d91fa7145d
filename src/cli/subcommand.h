// A subcommand is a struct: a name, a line of help, a function that declares its options, and one that runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace gpucast::cli {

// Declares its options on `app` and sets `action`, which main calls once when this subcommand was typed. The action
// returns the exit code and throws gpucast::Error when the tool or its input fails. Result on stdout, all else on stderr.
using Declare = void (*)(CLI::App& app, std::function<int()>& action);

struct Subcommand {
  const char* name;
  const char* help;
  Declare declare;
};

// One file each: src/cli/NAME.cc.
void declare_run(CLI::App& app, std::function<int()>& action);
void declare_profile(CLI::App& app, std::function<int()>& action);
void declare_analyze(CLI::App& app, std::function<int()>& action);
void declare_breakdown(CLI::App& app, std::function<int()>& action);
void declare_explain(CLI::App& app, std::function<int()>& action);
void declare_replay(CLI::App& app, std::function<int()>& action);
void declare_export(CLI::App& app, std::function<int()>& action);
void declare_diff(CLI::App& app, std::function<int()>& action);
void declare_gpus(CLI::App& app, std::function<int()>& action);
void declare_doctor(CLI::App& app, std::function<int()>& action);

}  // namespace gpucast::cli
