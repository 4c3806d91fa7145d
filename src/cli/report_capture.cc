#include "src/cli/report_capture.h"

#include <cstdio>

#include "gpucast/error.h"
#include "gpucast/predict.h"
#include "gpucast/report.h"
#include "src/cli/messages.h"

namespace gpucast::cli {

int report_trace(Trace trace, const std::optional<std::string>& gpu, Format format, bool kept) {
  const std::string path = trace.path;
  const Prediction prediction = predict(std::move(trace), gpu);
  if (format == Format::json) {
    std::fputs(json_report(prediction).c_str(), stdout);
  } else {
    TextOptions options;
    options.colour = colour_wanted();
    options.capture_path = kept ? path : "";
    std::fputs(text_report(prediction, options).c_str(), stdout);
  }
  return exit_code_of(prediction.verdict);
}

int exit_code_of(Verdict verdict) {
  if (verdict == Verdict::none) return kExitFailed;
  return verdict == Verdict::does_not_fit ? kExitNo : kExitYes;
}

}  // namespace gpucast::cli
