#include "gpucast/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "gpucast/prediction.h"

namespace gpucast {
namespace {

int severity(Verdict verdict) {
  switch (verdict) {
    case Verdict::does_not_fit:
      return 4;
    case Verdict::grows:
      return 3;
    case Verdict::tight:
      return 2;
    case Verdict::fits:
      return 1;
    case Verdict::none:
      break;
  }
  return 0;
}

auto need_of(const Prediction& p) { return std::tuple(severity(p.verdict), p.device.request_bytes, p.peak_reserved.bytes); }

std::vector<CategoryDifference> differences_of(const Prediction& more, const Prediction& less) {
  std::map<std::string, int64_t> bytes;
  for (const CategoryLine& line : more.categories) bytes[line.name] += line.bytes;
  for (const CategoryLine& line : less.categories) bytes[line.name] -= line.bytes;
  std::vector<CategoryDifference> found;
  for (const auto& [name, difference] : bytes) {
    if (difference != 0) found.push_back({name, difference});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return std::abs(a.bytes) > std::abs(b.bytes); });
  return found;
}

}  // namespace

Ranks compare_ranks(const std::vector<Prediction>& predictions) {
  Ranks ranks;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const Prediction& p = predictions[i];
    ranks.lines.push_back({.rank = p.rank,
                           .device = p.device_index,
                           .verdict = p.verdict,
                           .allocated_bytes = p.peak_allocated.bytes,
                           .reserved_bytes = p.peak_reserved.bytes,
                           .expected_bytes = p.device.expected_bytes,
                           .request_bytes = p.device.request_bytes,
                           .capture_path = ""});
    if (need_of(p) > need_of(predictions[ranks.judged])) ranks.judged = i;
    if (need_of(p) < need_of(predictions[ranks.least])) ranks.least = i;
  }
  ranks.differences = differences_of(predictions[ranks.judged], predictions[ranks.least]);
  return ranks;
}

}  // namespace gpucast
