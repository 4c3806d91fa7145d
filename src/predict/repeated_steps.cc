#include "src/predict/repeated_steps.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "src/attribution/attribute.h"

namespace gpucast {
namespace {

bool takes_block(OpKind kind) {
  return kind == OpKind::free || kind == OpKind::free_later || kind == OpKind::complete || kind == OpKind::record_stream;
}

}  // namespace

std::vector<uint32_t> step_end_positions(const Trace& trace, const std::vector<uint32_t>& positions) {
  std::vector<uint32_t> ends;
  for (size_t i = 0; i < trace.marks.size(); ++i) {
    if (trace.marks[i].kind == MarkKind::step) ends.push_back(positions[i]);
  }
  return ends;
}

std::vector<size_t> step_end_ops(const History& history, const Trace& trace) {
  std::vector<size_t> ends;
  if (history.first_action.empty()) return ends;
  for (const uint32_t position : step_end_positions(trace, mark_positions(trace))) {
    const auto at = std::lower_bound(history.first_action.begin(), history.first_action.end() - 1, position);
    ends.push_back(static_cast<size_t>(at - history.first_action.begin()));
  }
  return ends;
}

RepeatedSteps::RepeatedSteps(const History& history, const std::vector<size_t>& ends, size_t period) : history_(history), period_(period) {
  if (ends.size() < 2 * period + 1) return;
  const size_t last = ends.size() - 1;
  begin_ = ends[last - period];
  end_ = ends[last];
  const size_t before = ends[last - 2 * period];
  const size_t count = end_ - begin_;
  if (count == 0 || begin_ - before != count) return;
  std::unordered_map<uint32_t, size_t> made_at;  // id -> op
  for (size_t op = 0; op < end_; ++op) {
    if (history.ops[op].kind == OpKind::alloc) made_at[history.ops[op].id] = op;
  }
  std::vector<Step> steps;
  for (size_t i = 0; i < count; ++i) {
    const AllocOp &now = history.ops[begin_ + i], &then = history.ops[before + i];
    if (now.kind != then.kind || now.stream != then.stream) return;
    Step step{now, 0, 0, 0};
    if (now.kind == OpKind::alloc) {
      step.rise_bytes = now.size_bytes - then.size_bytes;
    } else if (takes_block(now.kind)) {
      const auto made_now = made_at.find(now.id), made_then = made_at.find(then.id);
      if (made_now == made_at.end() || made_then == made_at.end()) return;
      // A block that is older than both repetitions has no counterpart. Then this one must be of the repetition before.
      const bool is_older = made_then->second < before;
      if (is_older ? made_now->second >= begin_ : made_now->second - made_then->second != count) return;
      // How many repetitions before this one, and where in it.
      const size_t distance = made_now->second >= begin_ ? 0 : (begin_ - made_now->second + count - 1) / count;
      step.repetitions_before = distance;
      step.index = made_now->second + distance * count - begin_;
      if (distance > 0 && made_now->second < before) return;  // kept longer than the two repetitions that were compared
    }
    steps.push_back(step);
  }
  steps_ = std::move(steps);
}

History RepeatedSteps::continued(size_t times) const {
  History out;
  out.source = history_.source;
  out.torch = history_.torch;
  out.alloc_conf = history_.alloc_conf;
  out.device_total_bytes = history_.device_total_bytes;
  out.streams = history_.streams;
  out.stream_handles = history_.stream_handles;
  out.stream_ids = history_.stream_ids;
  out.id_count = history_.id_count;
  out.ops.assign(history_.ops.begin(), history_.ops.begin() + static_cast<ptrdiff_t>(end_));
  out.ops.reserve(out.ops.size() + times * steps_.size());
  std::vector<std::vector<uint32_t>> ids(2, std::vector<uint32_t>(steps_.size()));
  for (size_t i = 0; i < steps_.size(); ++i) ids[0][i] = history_.ops[begin_ + i].id;
  for (size_t repetition = 1; repetition <= times; ++repetition) {
    std::vector<uint32_t>& mine = ids[repetition % 2];
    const std::vector<uint32_t>& before = ids[(repetition + 1) % 2];
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      AllocOp op = step.op;
      if (op.kind == OpKind::alloc) {
        op.id = mine[i] = out.id_count++;
        op.size_bytes = std::max<int64_t>(1, op.size_bytes + static_cast<int64_t>(repetition) * step.rise_bytes);
      } else if (takes_block(op.kind)) {
        op.id = step.repetitions_before == 0 ? mine[step.index] : before[step.index];
      }
      out.ops.push_back(op);
    }
  }
  return out;
}

}  // namespace gpucast
