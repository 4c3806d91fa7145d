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

int report_trace(Trace trace, const std::optional<std::string>& gpu, double confidence, Format format, bool kept) {
  const std::string path = trace.path;
  return report(predict(std::move(trace), gpu, confidence), format, kept ? path : "");
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
  return exit_code_of(prediction.verdict);
}

int exit_code_of(Verdict verdict) {
  if (verdict == Verdict::none) return kExitFailed;
  return verdict == Verdict::does_not_fit ? kExitNo : kExitYes;
}

}  // namespace gpucast::cli
