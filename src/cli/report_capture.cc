#include "src/cli/report_capture.h"

#include <fmt/format.h>

#include <cstdio>

#include "gpucast/error.h"
#include "gpucast/predict.h"
#include "gpucast/report.h"
#include "src/cli/messages.h"

namespace gpucast::cli {

void declare_confidence(Arguments& arguments, double* confidence) {
  arguments.option("--confidence", confidence, "with this probability the job is to run with the memory that the report says to ask for")
      .shows_default();
}

void declare_steps_total(Arguments& arguments, int64_t* steps_total) {
  arguments
      .option("--steps-total", steps_total,
              "the job's own number of steps: if memory grows and runs out before, the answer is no (exit code 1)")
      .positive();
}

int report_trace(Trace trace, const std::optional<std::string>& gpu, double confidence, Format format, bool kept, int64_t steps_total) {
  const std::string path = trace.path;
  Prediction prediction = predict(std::move(trace), gpu, confidence);
  prediction.steps_total = steps_total;
  return report(prediction, format, kept ? path : "");
}

int report(const Prediction& prediction, Format format, const std::string& path) {
  if (format == Format::json) {
    std::fputs(json_report(prediction).c_str(), stdout);
  } else {
    TextOptions options;
    options.colour = colour_wanted();
    options.capture_path = path;
    std::fputs(text_report(prediction, options).c_str(), stdout);
  }
  return exit_code_of(prediction);
}

int exit_code_of(const Prediction& prediction) {
  if (prediction.verdict == Verdict::none) return kExitFailed;
  return prediction.verdict == Verdict::does_not_fit || runs_out_in_time(prediction) ? kExitNo : kExitYes;
}

}  // namespace gpucast::cli
