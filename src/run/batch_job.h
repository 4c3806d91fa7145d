// One line of a batch's job file (docs/reference/batch.md), and the command line of its run.
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
  std::string cudnn;                                                            // "": the default of `gpucast run`
  int64_t gpus = 0, world_size = 0;                                             // 0: the default of `gpucast run`
  std::string ranks;                                                            // "": the default of `gpucast run`
  std::string steps;                                                            // "": the default of `gpucast run`
  double timeout_s = 0;                                                         // 0: none
  double confidence = 0;                                                        // 0: the default of `gpucast run`
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;  // no value: the variable is removed
  std::string folder = ".";
  std::string output, log;  // relative to `folder`
  bool force = false, enforce_capacity = false, measure_host = false;
  std::vector<std::string> what_ifs;
};

// Why a job cannot be run; `code` is a word for programs.
struct JobProblem {
  std::string code = "bad_job", message, where, to_do;
};

struct ParsedJob {
  Job job;  // contains the job's name, if it has one, even when there is a problem
  std::optional<JobProblem> problem;
};

// `defaults`: the values of keys that the line does not contain. `line_number` counts from 1 and names a job without a name. An unknown key
// is a problem: a misspelt "enforce_capacity" must not go unnoticed.
ParsedJob parse_job(const std::string& line, int64_t line_number, const Job& defaults);

// The job as a line of a batch's job file, with its "\n".
std::string job_line(const Job& job);

// The words of a command as a shell would split them: blanks, quotes, backslashes; nothing is expanded. Nothing: a quote is left open.
std::optional<std::vector<std::string>> split_command(const std::string& text);

// gpucast run --as-job ... -- COMMAND, from `gpucast`, the path of this program. `options_end`: where "--" is.
std::vector<std::string> run_words(const Job& job, const std::string& gpucast, size_t* options_end);

}  // namespace gpucast::run
