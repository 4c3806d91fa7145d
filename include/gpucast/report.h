// A prediction as text for people, or as JSON (docs/reference/report-json.md).
#pragma once

#include <string>

#include "gpucast/prediction.h"

namespace gpucast {

struct TextOptions {
  bool colour = false;
  std::string capture_path;  // "" when the capture is not kept: then no command may name it
};

std::string text_report(const Prediction& prediction, const TextOptions& options);
std::string json_report(const Prediction& prediction);

}  // namespace gpucast
