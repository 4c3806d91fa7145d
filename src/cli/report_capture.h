// Shared by `run` and `analyze`: prints the report of a capture file on standard output.
#pragma once

#include <optional>
#include <string>

#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/cli/arguments.h"

namespace gpucast::cli {

enum class Format { text, json };

// Predicts for `gpu` (unset: the card of the capture) and prints the report to standard output. `kept` is false when the file is about
// to be deleted, so that the report must not name it in its next command. Returns exit_code_of(). Throws Error.
int report_trace(Trace trace, const std::optional<std::string>& gpu, double confidence, Format format, bool kept, int64_t steps_total = 0);

// Declares --confidence. check_confidence() throws Error for an impossible value.
void declare_confidence(Arguments& arguments, double* confidence);

// Declares --steps-total, for Prediction::steps_total.
void declare_steps_total(Arguments& arguments, int64_t* steps_total);

// Prints the report of a prediction. `path`: the capture that the report may name in its next command; "": none.
int report(const Prediction& prediction, Format format, const std::string& path);

// The exit code of a verdict. Verdict::none is neither yes nor no; memory that grows is a no if it runs out within the job's steps.
int exit_code_of(const Prediction& prediction);

}  // namespace gpucast::cli
