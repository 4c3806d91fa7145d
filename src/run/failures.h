// Why a run has no capture, or one that is not the job's as it would have ended by itself: in words, and as a word for programs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/failed_rank.h"
#include "src/run/supervise.h"

namespace gpucast::run {

// Why a run failed: `code` is one word for programs (docs/reference/batch.md lists them), next to the sentences for people.
struct RunError : Error {
  RunError(std::string why, const Error& error) : Error(error), code(std::move(why)) {}
  std::string code;
};

// " (exit code 3)", " (signal 9, Killed)", or "".
std::string how_it_ended(const Supervised& run);

// Why nothing was captured, where the command never got as far as having PyTorch in a Python of ours. `subcommand`: of gpucast.
std::optional<Error> explain_no_torch(const Supervised& run, const char* subcommand);
// Why nothing was captured, as exactly as the session tells. `timeout_s`, `gpus`: as the run was asked for.
RunError explain_nothing(const Supervised& run, double timeout_s, int64_t gpus);

// The script raised CUDA's out-of-memory error.
bool ran_out_of_memory(const CapturedProcess& process);
// A capture that is not the job's as it would have ended by itself; unset: all is well. `steps`: how many were asked for, if a number was.
std::optional<RunError> explain_captured(const CapturedProcess& process, const Supervised& command, double timeout_s, int64_t steps);
// The script raised, or ended by itself with an exit code that is not 0. Says so.
bool say_if_failed(const CapturedProcess& process, const Supervised& command);

// A rank that died without a capture. (Others that died so are helpers of the job.)
bool is_lost_rank(const CapturedProcess& process, const std::vector<CapturedProcess>& captured);
// The ranks that raised or were lost, but for the process `pid`, whose report says so itself.
std::vector<FailedRank> failed_ranks(const Supervised& command, const std::vector<CapturedProcess>& captured, pid_t pid);

}  // namespace gpucast::run
