#include "src/work/host_time.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace gpucast {
namespace {

constexpr double kFarApart = 3;     // steps whose work differs by more cannot be compared
constexpr int64_t kLeastPart = 10;  // the script has at least one part in ten of the CPU time

bool while_it_waits(const Trace& trace, int64_t time_us) {
  const std::vector<TakenBatch>& taken = trace.loader.taken;
  const auto behind =
      std::upper_bound(taken.begin(), taken.end(), time_us, [](int64_t us, const TakenBatch& one) { return us < one.unix_us; });
  return behind != taken.begin() && time_us <= std::prev(behind)->unix_us + std::prev(behind)->wall_us;
}

// Steps that ran unobserved may do more or less, since values are not followed there. The observed step's host time is theirs, times this
// ratio of both amounts of work. 0: too far apart.
double of_unobserved(int64_t pieces, size_t observed) {
  if (pieces == 0 || observed == 0) return 1;
  const double ratio = static_cast<double>(observed) / static_cast<double>(pieces);
  return ratio < kFarApart && ratio > 1 / kFarApart ? ratio : 0;
}

}  // namespace

LoaderWait loader_wait(const Trace& trace, int64_t begin_us, int64_t end_us) {
  LoaderWait out;
  for (const TakenBatch& batch : trace.loader.taken) {
    if (batch.unix_us < begin_us || batch.unix_us + batch.wall_us > end_us) continue;
    out.wall_us += batch.wall_us;
    out.cpu_us += batch.issuing_cpu_us;
    ++out.batches;
  }
  return out;
}

void remove_loader_wait(const Trace& trace, int64_t begin_us, int64_t end_us, StepOperations* step) {
  std::vector<LoopBatch> elsewhere;
  int64_t waited_ns = 0;
  auto operation = step->operations.begin();
  auto order = step->order.begin();
  const auto move_until = [&](int64_t ns) {
    for (; operation != step->operations.end() && operation->asked_ns < ns; ++operation)
      operation->asked_ns = std::max<int64_t>(0, operation->asked_ns - waited_ns);
    for (; order != step->order.end() && order->asked_ns < ns; ++order) order->asked_ns = std::max<int64_t>(0, order->asked_ns - waited_ns);
  };
  for (const TakenBatch& batch : trace.loader.taken) {
    if (batch.unix_us < begin_us || batch.unix_us + batch.wall_us > end_us) {
      elsewhere.push_back({static_cast<double>(batch.wall_us) * 1e3, static_cast<double>(batch.cpu_us) * 1e3});
      continue;
    }
    const int64_t taken_ns = (batch.unix_us - begin_us) * 1000;
    move_until(taken_ns);
    step->batches.push_back({taken_ns - waited_ns, static_cast<size_t>(operation - step->operations.begin())});
    waited_ns += batch.wall_us * 1000;
  }
  move_until(INT64_MAX);
  if (elsewhere.size() > 1) elsewhere.erase(elsewhere.begin());  // the first opens files and fills caches that later ones use
  if (elsewhere.empty() || trace.loader.workers > 0) return;     // workers fill their queue in the first steps
  const auto middle = elsewhere.begin() + static_cast<ptrdiff_t>(elsewhere.size() / 2);
  std::nth_element(elsewhere.begin(), middle, elsewhere.end(), [](const LoopBatch& a, const LoopBatch& b) { return a.ns < b.ns; });
  step->loop_batch = *middle;
}

HostObservation observe_host(const Trace& trace, double observed_ns, size_t pieces) {
  HostObservation out;
  out.observed_ns = observed_ns;
  const ObservedStep& observed = trace.observed;
  out.yardstick_ns = observed.yardstick_ns;
  out.timed = !observed.hooks_us.empty();
  const double scale = of_unobserved(observed.unobserved_pieces, pieces);
  if (!observed.unobserved_ns.empty() && scale > 0) {
    out.unobserved_ns = scale * static_cast<double>(observed.unobserved_ns.front());
    std::vector<int64_t> steps(observed.unobserved_ns.begin() + 1, observed.unobserved_ns.end());
    std::ranges::sort(steps);
    out.middle_unobserved_ns = scale * static_cast<double>(steps[steps.size() / 2]);
    out.unobserved_steps = static_cast<int64_t>(steps.size());
  }
  std::map<int64_t, const Mark*> ends;  // of steps
  int64_t begin_us = 0, end_us = 0;
  for (const Mark& mark : trace.marks) {
    if (mark.kind == MarkKind::step) ends[mark.step] = &mark;
    if (mark.sequence < observed.first_mark || mark.sequence > observed.last_mark) continue;
    if (out.marks == 0) begin_us = mark.time_us;
    end_us = mark.time_us;
    out.marks += mark.sequence < observed.last_mark && !while_it_waits(trace, mark.time_us);
  }
  const auto hooks_us = [&](int64_t step) {
    const auto found = observed.hooks_us.find(step), before = observed.hooks_us.find(step - 1);
    return found == observed.hooks_us.end() || before == observed.hooks_us.end() ? 0 : found->second - before->second;
  };
  const auto for_each_step = [&](auto&& visit) {
    for (const auto& [step, end] : ends)
      if (const auto before = ends.find(step - 1); step >= 2 && before != ends.end()) visit(step, *before->second, *end);
  };
  int64_t least_hooks_us = INT64_MAX;  // hooks need about the same time in every step; in the fastest one nothing interrupted them
  for_each_step([&](int64_t step, const Mark&, const Mark&) { least_hooks_us = std::min(least_hooks_us, hooks_us(step)); });
  for_each_step([&](int64_t step, const Mark& begin, const Mark& end) {
    const LoaderWait waited = loader_wait(trace, begin.time_us, end.time_us);
    const int64_t wall_us = end.time_us - begin.time_us - waited.wall_us;
    int64_t us = wall_us - hooks_us(step);
    if (begin.cpu_us > 0 && end.cpu_us > 0 && us > 0) {
      const int64_t cpu_us = end.cpu_us - begin.cpu_us - waited.cpu_us, left_us = cpu_us - least_hooks_us;
      // Hooks that were interrupted in every step: other programs interrupt hooks and script alike.
      us = std::min(us, left_us > cpu_us / kLeastPart ? left_us : us * std::max<int64_t>(0, cpu_us) / wall_us);
    }
    const double ns = static_cast<double>(us) * 1e3;
    if (ns <= 0) return;                                                     // a clock was set back
    double& fastest_ns = step == observed.step ? out.own_ns : out.other_ns;  // disturbances only make a step longer
    fastest_ns = fastest_ns > 0 ? std::min(fastest_ns, ns) : ns;
  });
  out.alone = ends.size() < 2;
  out.allocations = std::count_if(trace.events.begin(), trace.events.end(), [&](const AllocatorEvent& event) {
    return event.kind == EventKind::alloc && event.time_us >= begin_us && event.time_us <= end_us && !while_it_waits(trace, event.time_us);
  });
  return out;
}

}  // namespace gpucast
