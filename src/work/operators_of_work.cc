#include "src/work/operators_of_work.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gpucast {

namespace {

// Whether no other call begins inside this one. The calls of a thread are in the order of their begin.
std::vector<bool> innermost_calls(const ObservedStep& step, const std::map<int64_t, std::vector<size_t>>& by_thread) {
  std::vector<bool> out(step.operators.size(), true);
  for (const auto& [thread, calls] : by_thread) {
    for (size_t i = 0; i + 1 < calls.size(); ++i) {
      const OperatorCall &call = step.operators[calls[i]], &next = step.operators[calls[i + 1]];
      out[calls[i]] = call.start_ns + call.duration_ns < next.start_ns;
    }
  }
  return out;
}

}  // namespace

std::vector<int64_t> operators_of_work(const ObservedStep& step) {
  const int64_t shift = step.clock_unix_ns - step.unix_ns;
  const auto asked_ns = [&](size_t i) { return step.work[i].captured_ns >= 0 ? step.work[i].captured_ns : step.work[i].time_ns; };
  std::map<int64_t, std::vector<size_t>> operators, work;
  for (size_t i = 0; i < step.operators.size(); ++i) operators[step.operators[i].thread].push_back(i);
  for (size_t i = 0; i < step.work.size(); ++i)
    work[step.work[i].captured_ns >= 0 ? step.work[i].captured_thread : step.work[i].thread].push_back(i);
  for (auto& [thread, pieces] : work) {
    const auto earlier = [&](size_t a, size_t b) { return asked_ns(a) < asked_ns(b); };
    if (!std::is_sorted(pieces.begin(), pieces.end(), earlier)) std::stable_sort(pieces.begin(), pieces.end(), earlier);
  }
  const std::vector<bool> innermost = innermost_calls(step, operators);
  std::vector<int64_t> out(step.work.size(), -1);
  for (const auto& [thread, pieces] : work) {
    // The thread whose calls hold the work. A call around a whole step, as an optimizer's with a closure, would hold any thread's.
    std::vector<int64_t> best;
    std::pair<size_t, size_t> most{0, 0};
    for (const auto& [candidate, calls] : operators) {
      std::vector<int64_t> found(pieces.size(), -1);
      std::vector<size_t> open;  // nested calls
      size_t next = 0, held = 0, held_closely = 0;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const int64_t time = asked_ns(pieces[i]) + shift;
        for (; next < calls.size() && step.operators[calls[next]].start_ns <= time; ++next) {
          const OperatorCall& call = step.operators[calls[next]];
          while (!open.empty() && step.operators[open.back()].start_ns + step.operators[open.back()].duration_ns < call.start_ns)
            open.pop_back();
          open.push_back(calls[next]);
        }
        while (!open.empty() && step.operators[open.back()].start_ns + step.operators[open.back()].duration_ns < time) open.pop_back();
        if (open.empty()) continue;
        found[i] = static_cast<int64_t>(open.back());
        ++held;
        if (innermost[open.back()]) ++held_closely;
      }
      if (std::pair(held_closely, held) > most) {
        most = {held_closely, held};
        best = std::move(found);
      }
    }
    for (size_t i = 0; i < best.size(); ++i) out[pieces[i]] = best[i];
  }
  return out;
}

}  // namespace gpucast
