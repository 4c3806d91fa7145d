// Why a run has no capture, or a capture of a job that did not end normally: as a sentence, and as one word for programs.
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

// Why nothing was captured when the command never imported PyTorch in a Python with our hooks. `subcommand`: gpucast's own, for the hint.
std::optional<Error> explain_no_torch(const Supervised& run, const char* subcommand);
// Why nothing was captured, with all details that the session's files give. `timeout_s`, `gpus`: the run's settings.
RunError explain_nothing(const Supervised& run, double timeout_s, int64_t gpus);

// Whether the script raised CUDA's out-of-memory error.
bool ran_out_of_memory(const CapturedProcess& process);
// Why a capture does not show the whole job; unset: it does. `steps`: the requested number of steps, if it was a number.
std::optional<RunError> explain_captured(const CapturedProcess& process, const Supervised& command, double timeout_s, int64_t steps);
// Whether the script raised an exception, or exited with a code that is not 0. If so, prints a message.
bool say_if_failed(const CapturedProcess& process, const Supervised& command);

// Whether the process is a rank that died without a capture. (Other processes that died without one are helpers of the job.)
bool is_lost_rank(const CapturedProcess& process, const std::vector<CapturedProcess>& captured);
// The ranks that raised or were lost, without the process `pid`: its own report says that.
std::vector<FailedRank> failed_ranks(const Supervised& command, const std::vector<CapturedProcess>& captured, pid_t pid);

}  // namespace gpucast::run
