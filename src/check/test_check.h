// Figures and results for the tests of a check.
#pragma once

#include <string>
#include <vector>

#include "src/attribution/attribution.h"
#include "src/check/baseline.h"
#include "src/check/judge_card.h"
#include "src/check/result.h"

namespace gpucast::check {

inline constexpr int64_t kTestMiB = 1 << 20;

inline ModuleBytes test_module(const std::string& name, const std::string& type, int64_t parameters_bytes, int64_t activations_bytes) {
  ModuleBytes out{name, type, {}};
  out.bytes[static_cast<size_t>(Category::parameters)] = parameters_bytes;
  out.bytes[static_cast<size_t>(Category::activations)] = activations_bytes;
  return out;
}

inline CardFigures test_figures(const std::vector<ModuleBytes>& modules, int64_t free_bytes = 0) {
  CardFigures out;
  out.torch = "2.6.0";
  out.steps = 3;
  out.modules = modules;
  for (const ModuleBytes& module : modules)
    for (const int64_t bytes : module.bytes) out.peak_allocated_bytes += bytes;
  out.peak_reserved_bytes = out.peak_allocated_bytes + free_bytes;
  out.device_expected_bytes = out.peak_reserved_bytes + 100 * kTestMiB;
  out.device_request_bytes = out.peak_reserved_bytes + 200 * kTestMiB;
  return out;
}

struct TestRow {
  std::string name, type;
  int32_t parent = -1;
  int64_t parameters_bytes = 0, activations_bytes = 0;
};

// Of modules with these own bytes; parents come first.
inline Breakdown test_breakdown(const std::vector<TestRow>& rows) {
  Breakdown out;
  for (size_t c = 0; c < kCategories; ++c) out.categories.emplace_back(category_name(static_cast<Category>(c)));
  BreakdownMoment& peak = out.moments[0];
  peak.known = true;
  std::vector<BreakdownRow>& modules = out.rows[static_cast<size_t>(Grouping::module)];
  for (const TestRow& row : rows) {
    modules.push_back({row.name, row.type, row.parent, 0, false, {}});
    const auto add = [&](Category category, int64_t bytes) {
      const auto c = static_cast<size_t>(category);
      for (auto at = static_cast<int32_t>(modules.size()) - 1; at >= 0; at = modules[static_cast<size_t>(at)].parent) {
        modules[static_cast<size_t>(at)].moments[0].categories[c].allocated_bytes += bytes;
        modules[static_cast<size_t>(at)].moments[0].total.allocated_bytes += bytes;
      }
      peak.figures.categories[c].allocated_bytes += bytes;
      peak.allocated_bytes += bytes;
    };
    add(Category::parameters, row.parameters_bytes);
    add(Category::activations, row.activations_bytes);
  }
  out.peak_reserved_bytes = peak.reserved_bytes = peak.allocated_bytes;
  out.device.expected_bytes = out.device.request_bytes = peak.allocated_bytes;
  return out;
}

}  // namespace gpucast::check
