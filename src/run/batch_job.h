// One line of a batch's job file (docs/reference/batch.md), and the command line of the run that it asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpucast::run {

struct Job {
  std::string name;
  std::vector<std::string> command;
  std::string gpu;                                                              // "": none named
  std::string cudnn;                                                            // "": as `gpucast run` does by itself
  int64_t gpus = 0;                                                             // 0: as `gpucast run` does by itself
  std::string steps;                                                            // "": as `gpucast run` does by itself
  double timeout_s = 0;                                                         // 0: none
  double confidence = 0;                                                        // 0: as `gpucast run` does by itself
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;  // nothing: the variable is removed
  std::string folder = ".";
  std::string output, log;  // relative to `folder`
  bool force = false, enforce_capacity = false;
  std::vector<std::string> what_ifs;
};

// Why a job cannot be run; `code` is a word for programs.
struct JobProblem {
  std::string code = "bad_job", message, where, to_do;
};

struct ParsedJob {
  Job job;  // with its name, where it has one, also when there is a problem
  std::optional<JobProblem> problem;
};

// `defaults`: what a job has that does not say otherwise. `line_number` counts from 1 and names a job without a name. A key that is
// not known is a problem: a misspelt "enforce_capacity" must not go unnoticed.
ParsedJob parse_job(const std::string& line, int64_t line_number, const Job& defaults);

// The words of a command as a shell would split them: blanks, quotes, backslashes; nothing is expanded. Nothing: a quote is left open.
std::optional<std::vector<std::string>> split_command(const std::string& text);

// gpucast run --as-job ... -- COMMAND, from `gpucast`, the path of this program. `options_end`: where "--" is.
std::vector<std::string> run_words(const Job& job, const std::string& gpucast, size_t* options_end);

}  // namespace gpucast::run
