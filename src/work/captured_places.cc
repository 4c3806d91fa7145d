#include "src/work/captured_places.h"

#include <algorithm>
#include <cstdint>

#include "src/attribution/open_marks.h"

namespace gpucast {
namespace {

bool is_of_a_step(Phase phase) {
  return phase == Phase::forward || phase == Phase::loss || phase == Phase::backward || phase == Phase::optimizer_step ||
         phase == Phase::zero_grad;
}

// The captured work, by the time of its capture.
std::vector<size_t> captured_work(const ObservedStep& step) {
  std::vector<size_t> out;
  for (size_t i = 0; i < step.work.size(); ++i)
    if (step.work[i].captured_ns >= 0) out.push_back(i);
  std::ranges::stable_sort(out, {}, [&](size_t i) { return step.work[i].captured_ns; });
  return out;
}

std::vector<const Mark*> marks_in_order(const Trace& trace) {
  std::vector<const Mark*> out;
  out.reserve(trace.marks.size());
  for (const Mark& mark : trace.marks) out.push_back(&mark);
  std::ranges::stable_sort(out, {}, &Mark::sequence);
  return out;
}

}  // namespace

std::vector<std::optional<CapturedPlace>> captured_places(const Trace& trace) {
  const ObservedStep& step = trace.observed;
  std::vector<std::optional<CapturedPlace>> out(step.work.size());
  const std::vector<size_t> captured = captured_work(step);
  if (captured.empty()) return out;
  const std::vector<const Mark*> marks = marks_in_order(trace);
  OpenMarks open(trace);
  size_t next = 0;
  for (const size_t i : captured) {
    const int64_t captured_us = (step.clock_unix_ns + step.work[i].captured_ns) / 1000;
    while (next < marks.size() && marks[next]->time_us <= captured_us) (void)open.apply(*marks[next++]);
    if (is_of_a_step(open.phase())) out[i] = {open.phase(), open.module()};
  }
  return out;
}

}  // namespace gpucast
