// Results as text for people, as JSON (docs/reference/report-json.md, breakdown.md) and CSV.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpucast/breakdown.h"
#include "gpucast/prediction.h"

namespace gpucast {

struct TextOptions {
  bool colour = false;
  std::string capture_path;  // "" if the capture is not kept: then no printed command may name it
};

std::string text_report(const Prediction& prediction, const TextOptions& options);
std::string json_report(const Prediction& prediction);

struct BreakdownTextOptions {
  bool colour = false;
  Grouping by = Grouping::module;
  Instant moment = Instant::peak;
  std::optional<int32_t> depth;  // of the module tree; unset: what fits on a screen
  size_t rows = 20;              // of the other groupings
};

std::string breakdown_text(const Breakdown& breakdown, const BreakdownTextOptions& options);
std::string breakdown_json(const Breakdown& breakdown);
// `by` unset: all groupings, one after the other.
std::string breakdown_csv(const Breakdown& breakdown, std::optional<Grouping> by);

}  // namespace gpucast
