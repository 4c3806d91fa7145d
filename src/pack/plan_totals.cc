#include "src/pack/plan_totals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace gpucast::pack {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Reorders the values.
double quantile(std::vector<double>* values, double q) {
  const auto index = static_cast<std::ptrdiff_t>(std::ceil(q * static_cast<double>(values->size()))) - (q > 0 ? 1 : 0);
  std::nth_element(values->begin(), values->begin() + index, values->end());
  return (*values)[static_cast<size_t>(index)];
}

}  // namespace

void add_totals(const std::vector<const Job*>& by_arrival, std::span<const uint32_t> order, const std::vector<CardState>& cards,
                Plan* plan) {
  if (by_arrival.empty()) return;
  plan->first_arrival_ns = by_arrival.front()->arrival_ns;
  int64_t last_end_ns = plan->first_arrival_ns;
  std::vector<double> jct_ns, queued_ns;
  double slowdowns = 0;
  for (size_t job = 0; job < by_arrival.size(); ++job) {
    const Placement& placed = plan->jobs[order[job]];
    if (placed.outcome == Outcome::never_fits) ++plan->never_fits;
    if (placed.outcome != Outcome::finished) continue;
    ++plan->finished;
    last_end_ns = std::max(last_end_ns, placed.end_ns);
    jct_ns.push_back(static_cast<double>(placed.end_ns - by_arrival[job]->arrival_ns));
    queued_ns.push_back(static_cast<double>(placed.start_ns - by_arrival[job]->arrival_ns));
    slowdowns += placed.slowdown;
    plan->job_gpu_hours += static_cast<double>(placed.end_ns - placed.start_ns) * static_cast<double>(placed.cards.size()) / kHourNs;
  }
  plan->makespan_ns = last_end_ns - plan->first_arrival_ns;
  if (!jct_ns.empty()) {
    plan->mean_jct_ns = mean(jct_ns);
    plan->mean_queue_ns = mean(queued_ns);
    plan->mean_slowdown = slowdowns / static_cast<double>(jct_ns.size());
    plan->p50_jct_ns = quantile(&jct_ns, 0.5);
    plan->p99_jct_ns = quantile(&jct_ns, 0.99);
    plan->p99_queue_ns = quantile(&queued_ns, 0.99);
  }
  const auto makespan_ns = static_cast<double>(plan->makespan_ns), card_count = static_cast<double>(cards.size());
  for (size_t c = 0; c < cards.size(); ++c) {
    plan->gpu_hours += cards[c].busy_ns / kHourNs;
    if (makespan_ns <= 0) continue;
    CardUse& use = plan->cards[c];
    use.busy = cards[c].busy_ns / makespan_ns;
    use.nvml = cards[c].nvml_ns / makespan_ns;
    use.occupancy = cards[c].occupancy_ns / makespan_ns;
    plan->utilization += use.busy / card_count;
    plan->nvml += use.nvml / card_count;
    plan->occupancy += use.occupancy / card_count;
  }
}

}  // namespace gpucast::pack
