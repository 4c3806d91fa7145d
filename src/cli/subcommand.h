// A subcommand is a struct: a name, a line of help, and a function that declares its options and action.
#pragma once

#include <span>

#include "src/cli/arguments.h"

namespace gpucast::cli {

// Declares the options and the action.
using Declare = void (*)(Arguments& arguments);

struct Subcommand {
  const char* name;
  const char* help;
  Declare declare;
};

// Parses the words, runs the subcommand that they name (or --help, --version) and returns its exit code. For wrong words, throws
// gpucast::Error with a "did you mean". Also throws all exceptions of the subcommand.
int run_command_line(std::span<const Subcommand> subcommands, int argc, char** argv);

// Each is in its own file: src/cli/NAME.cc.
void declare_run(Arguments& arguments);
void declare_batch(Arguments& arguments);
void declare_profile(Arguments& arguments);
void declare_analyze(Arguments& arguments);
void declare_breakdown(Arguments& arguments);
void declare_explain(Arguments& arguments);
void declare_advise(Arguments& arguments);
void declare_replay(Arguments& arguments);
void declare_export(Arguments& arguments);
void declare_diff(Arguments& arguments);
void declare_check(Arguments& arguments);
void declare_time(Arguments& arguments);
void declare_occupancy(Arguments& arguments);
void declare_pack(Arguments& arguments);
void declare_fit(Arguments& arguments);
void declare_sweep(Arguments& arguments);
void declare_plan(Arguments& arguments);
void declare_model(Arguments& arguments);
void declare_gpus(Arguments& arguments);
void declare_machines(Arguments& arguments);
void declare_doctor(Arguments& arguments);

}  // namespace gpucast::cli
