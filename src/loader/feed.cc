#include "src/loader/feed.h"

#include <algorithm>

namespace gpucast {
namespace {

constexpr int64_t kBatches = 2000;
constexpr int64_t kMostFeedWorkers = 1024, kMostAhead = 4096;

}  // namespace

double mean_step_ns(double work_ns, int64_t workers, int64_t prefetch, double period_ns, const std::vector<double>& variation) {
  workers = std::clamp<int64_t>(workers, 1, kMostFeedWorkers);
  const int64_t ahead = std::min(workers * std::clamp<int64_t>(prefetch, 1, kMostAhead), std::max(kMostAhead, workers));
  const int64_t warm = 2 * ahead, count = warm + std::max(kBatches, 4 * ahead);
  std::vector<double> taken(static_cast<size_t>(count));
  std::vector<double> free_at(static_cast<size_t>(workers));
  uint32_t random = 1;
  double loop_free = 0;
  for (int64_t i = 0; i < count; ++i) {
    double make_ns = period_ns * static_cast<double>(workers);
    if (!variation.empty()) {
      random = random * 1664525U + 1013904223U;
      make_ns *= variation[(random >> 8U) % variation.size()];
    }
    const double asked = i < ahead ? 0 : taken[static_cast<size_t>(i - ahead)];
    double& worker = free_at[static_cast<size_t>(i % workers)];
    worker = std::max(worker, asked) + make_ns;
    taken[static_cast<size_t>(i)] = std::max(worker, loop_free);
    loop_free = taken[static_cast<size_t>(i)] + work_ns;
  }
  return (taken.back() - taken[static_cast<size_t>(warm)]) / static_cast<double>(count - 1 - warm);
}

}  // namespace gpucast
