// What a check compares: a job's figures on one card. The baseline keeps these.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpucast/breakdown.h"
#include "gpucast/diff.h"
#include "src/predict/analysis.h"

namespace gpucast::check {

// A module's own bytes at the peak, without the modules below it.
struct ModuleBytes {
  std::string name, type;
  std::array<int64_t, kCategories> bytes{};
};

struct CardFigures {
  std::string torch;
  int32_t steps = 0;
  int64_t peak_reserved_bytes = 0, peak_allocated_bytes = 0;
  int64_t device_expected_bytes = 0, device_request_bytes = 0;
  std::optional<int64_t> step_ns;
  std::vector<ModuleBytes> modules;  // in the model's order; they add up to peak_allocated_bytes
};

// Small modules share this row, so that a baseline stays short.
inline constexpr const char* kSmallModules = "(small modules)";

// Modules with less than 1/1000 of the peak share one row, unless `kept` names them.
void fold_small_modules(const std::set<std::string>& kept, Breakdown* breakdown);

CardFigures figures_of(const Analysis& analysis, const Breakdown& folded, std::optional<int64_t> step_ns);

// The earlier side of a diff with `now`, which is folded.
DiffInput as_diff_input(const CardFigures& figures, const std::string& gpu, const Breakdown& now);

}  // namespace gpucast::check
