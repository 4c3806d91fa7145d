#include "src/search/scaled_history.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "src/predict/repeated_steps.h"

namespace gpucast::search {
namespace {

std::vector<int64_t> allocation_bytes(const History& history) {
  std::vector<int64_t> out;
  for (const AllocOp& op : history.ops) {
    if (op.kind == OpKind::alloc) out.push_back(op.size_bytes);
  }
  return out;
}

// [first, end) of the allocations with the same number of marks before them.
struct Window {
  size_t first = 0, end = 0;
  size_t size() const { return end - first; }
};

std::vector<Window> windows_of(const MarkedHistory& run) {
  std::vector<Window> out(run.marks.size() + 1);
  size_t at = 0;
  for (size_t marks = 0; marks < out.size(); ++marks) {
    out[marks].first = at;
    while (at < run.marks_before.size() && run.marks_before[at] <= marks) ++at;
    out[marks].end = at;
  }
  return out;
}

std::vector<size_t> order_of(const Window& window, const std::vector<int64_t>& bytes, bool by_size) {
  std::vector<size_t> out(window.size());
  std::iota(out.begin(), out.end(), window.first);
  if (by_size) std::ranges::stable_sort(out, std::ranges::greater(), [&](size_t i) { return bytes[i]; });
  return out;
}

}  // namespace

MarkedHistory marked_history(const Facts& facts) {
  MarkedHistory out;
  out.history = facts.history;
  if (goes_on(facts)) out.step_ends = step_end_ops(facts.history, facts.trace);
  out.history.actions.clear();  // of the recorded values
  out.history.first_action.clear();
  out.history.end_segments.reset();
  for (AllocOp& op : out.history.ops) {
    if (op.failed_when_recorded) op.kind = OpKind::nothing;
  }
  std::vector<int64_t> allocs_before;
  for (const Mark& mark : facts.trace.marks) {
    if (mark.kind == MarkKind::tensors || mark.kind == MarkKind::other) continue;
    out.marks.push_back(mark.kind);
    allocs_before.push_back(mark.allocs);
  }
  const size_t allocations = allocation_bytes(out.history).size();
  for (size_t i = 0; i < allocations; ++i) {
    const auto after = std::ranges::upper_bound(allocs_before, static_cast<int64_t>(i));
    out.marks_before.push_back(static_cast<uint32_t>(after - allocs_before.begin()));
  }
  return out;
}

bool goes_on(const Facts& facts) { return facts.trace.end.reason == "steps"; }

MarkedHistory beginning_of(MarkedHistory run, size_t marks) {
  if (run.marks.size() <= marks) return run;
  run.marks.resize(marks);
  const auto end = std::ranges::upper_bound(run.marks_before, static_cast<uint32_t>(marks));
  const auto kept = static_cast<size_t>(end - run.marks_before.begin());
  run.marks_before.resize(kept);
  std::vector<AllocOp>& ops = run.history.ops;
  size_t allocations = 0;
  const auto first = std::ranges::find_if(ops, [&](const AllocOp& op) { return op.kind == OpKind::alloc && ++allocations > kept; });
  ops.erase(first, ops.end());
  std::erase_if(run.step_ends, [&](size_t end_of_step) { return end_of_step > ops.size(); });
  return run;
}

std::vector<double> growth_bytes(const MarkedHistory& base, int64_t base_value, const MarkedHistory& other, int64_t other_value) {
  if (base.marks != other.marks || base_value == other_value) return {};
  const std::vector<int64_t> bytes = allocation_bytes(base.history), other_bytes = allocation_bytes(other.history);
  const std::vector<Window> windows = windows_of(base), other_windows = windows_of(other);
  std::vector<double> out(bytes.size());
  for (size_t w = 0; w < windows.size(); ++w) {
    const bool by_size = windows[w].size() != other_windows[w].size();
    const std::vector<size_t> here = order_of(windows[w], bytes, by_size), there = order_of(other_windows[w], other_bytes, by_size);
    for (size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
      const auto more = static_cast<double>(bytes[here[i]] - other_bytes[there[i]]);
      // A tensor grows no faster than in proportion. What does is a library's workspace, whose size is not a line.
      const double most = static_cast<double>(bytes[here[i]]) / static_cast<double>(std::max<int64_t>(base_value, 1));
      out[here[i]] = std::clamp(more / static_cast<double>(base_value - other_value), 0.0, most);
    }
  }
  return out;
}

bool is_workspace(const History& history, size_t op) {
  const std::vector<AllocOp>& ops = history.ops;
  return op + 1 < ops.size() && ops[op].kind == OpKind::alloc && ops[op + 1].kind == OpKind::free && ops[op + 1].id == ops[op].id;
}

MarkedHistory without_workspaces(MarkedHistory run) {
  for (size_t i = 0; i < run.history.ops.size(); ++i) {
    if (is_workspace(run.history, i)) run.history.ops[i].size_bytes = 1;
  }
  return run;
}

History scaled(const MarkedHistory& base, const std::vector<double>& growth_bytes, int64_t more) {
  History out = base.history;
  size_t at = 0;
  for (AllocOp& op : out.ops) {
    if (op.kind != OpKind::alloc) continue;
    op.size_bytes = std::max<int64_t>(op.size_bytes + std::llround(growth_bytes[at++] * static_cast<double>(more)), 1);
  }
  return out;
}

}  // namespace gpucast::search
