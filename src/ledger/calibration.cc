#include "src/ledger/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "calibration_json.h"
#include "gpucast/error.h"
#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/base/with_spaces.h"
#include "src/ledger/ledger_constants.h"

namespace gpucast {
namespace {

struct CalibrationTable {
  std::vector<std::string> cards;   // measured ones
  double scale_bytes = 0;           // errors grow with reserved memory up to this size
  double measured_up_to_bytes = 0;  // and again above this size, because no larger run was measured
  double widening = 1;              // for cards and precisions without measured runs
  std::vector<CalibrationClass> classes;
};

CalibrationTable parse_table() {
  const Json json = Json::parse(kCalibrationJson);
  CalibrationTable table;
  for (const Json& card : json["cards"]) table.cards.push_back(card.get<std::string>());
  table.scale_bytes = json["scale_bytes"].get<double>();
  table.measured_up_to_bytes = json["measured_up_to_bytes"].get<double>();
  table.widening = json["widening"].get<double>();
  for (const Json& entry : json["classes"]) {
    CalibrationClass row;
    row.name = entry["name"].get<std::string>();
    row.rows_of = entry["rows_of"].get<std::string>();
    row.rows = entry["rows"].get<int64_t>();
    row.models = entry["models"].get<int64_t>();
    row.low = entry["low"].get<double>();
    for (const Json& pair : entry["quantiles"]) row.quantiles.emplace_back(pair.at(0).get<double>(), pair.at(1).get<double>());
    table.classes.push_back(std::move(row));
  }
  return table;
}

const CalibrationTable& table() {
  static const CalibrationTable parsed = parse_table();
  return parsed;
}

const CalibrationClass& class_row(JobClass job_class) {
  const std::string name = job_class_name(job_class);
  for (const CalibrationClass& row : table().classes) {
    if (row.name == name) return row;
  }
  throw Error(fmt::format("internal error: data/calibration.json has no class '{}'", name), "",
              "make it again: eval/memory/upper_bound.py");
}

// The unit of a class's scores: scores times this are bytes.
double scale_of(double reserved_bytes) {
  const double within = std::min(reserved_bytes, table().scale_bytes);
  return within * std::max(1.0, reserved_bytes / table().measured_up_to_bytes);
}

double log_left(double confidence) { return -std::log(1 - confidence); }

int64_t in_whole_mib(double bytes) { return static_cast<int64_t>(std::ceil(bytes / kMiB)) * kMiB; }

}  // namespace

const char* job_class_name(JobClass job_class) {
  static constexpr const char* kNames[] = {"no_convolutions", "varying_lengths",  "dense",        "pointwise",       "grouped",
                                           "depthwise",       "first_layer_only", "convolutions", "workspaces_asked"};
  static_assert(std::size(kNames) == static_cast<size_t>(JobClass::count_));
  return kNames[static_cast<size_t>(job_class)];
}

double score_at(const CalibrationClass& row, double confidence) {
  const auto& known = row.quantiles;
  if (known.empty()) return 0;
  if (known.size() == 1 || confidence <= known.front().first) return known.front().second;
  size_t right = 1;
  while (right + 1 < known.size() && known[right].first < confidence) ++right;
  const auto& [left_confidence, left_score] = known[right - 1];
  const auto& [right_confidence, right_score] = known[right];
  const double slope = (right_score - left_score) / (log_left(right_confidence) - log_left(left_confidence));
  return left_score + slope * (log_left(confidence) - log_left(left_confidence));
}

CalibratedRange calibrated_range(JobClass job_class, const Gpu& gpu, int64_t reserved_bytes, bool measured_type, double confidence) {
  const CalibrationClass& row = class_row(job_class);
  std::vector<std::string> outside;
  if (std::find(table().cards.begin(), table().cards.end(), measured_id(gpu)) == table().cards.end()) outside.emplace_back("on this card");
  if (!measured_type) outside.emplace_back("in this precision");
  const double widening = outside.empty() ? 1 : table().widening;
  if (static_cast<double>(reserved_bytes) > table().measured_up_to_bytes) outside.emplace_back("of this size");
  const double scale = widening * scale_of(static_cast<double>(reserved_bytes));

  CalibratedRange out;
  out.low_bytes = -in_whole_mib(-std::min(0.0, row.low) * scale);
  out.high_bytes = in_whole_mib(std::max(0.0, score_at(row, ledger_constants().interval_confidence)) * scale);
  out.request_bytes = in_whole_mib(std::max(0.0, score_at(row, confidence)) * scale);
  if (!outside.empty()) out.wider = fmt::format("none was measured {}", fmt::join(outside, " or "));
  if (row.rows == 0) {
    out.rows = fmt::format("assumed, no run was measured: {}", row.rows_of);
    return out;
  }
  const std::string stands_for = row.rows_of == row.name ? "" : fmt::format(", too few of {}", with_spaces(row.name));
  out.rows = fmt::format("{} measured runs of {} models ({}{})", row.rows, row.models, with_spaces(row.rows_of), stands_for);
  out.beyond_worst = confidence > static_cast<double>(row.rows) / static_cast<double>(row.rows + 1);
  return out;
}

}  // namespace gpucast
