#include "src/attribution/open_marks.h"

#include <algorithm>
#include <iterator>

namespace gpucast {

OpenMarks::OpenMarks(const Trace& trace, bool cut_short) : module_count_(trace.modules.size()), cut_short_(cut_short) {
  for (const Mark& mark : trace.marks)
    backwards_ahead_ += mark.kind == MarkKind::phase_begin && mark.phase == MarkedPhase::backward ? 1 : 0;
}

bool OpenMarks::inside(MarkedPhase phase) const {
  return std::any_of(open_.begin(), open_.end(), [&](const Open& open) { return open.phase == phase; });
}

Phase OpenMarks::phase() const {
  if (open_.empty()) return between_;
  if (open_.back().phase == MarkedPhase::forward && inside(MarkedPhase::backward)) return Phase::backward;
  return to_phase(open_.back().phase);
}

ModuleId OpenMarks::module() const {
  if (!modules_.empty()) return modules_.back();
  return inside(MarkedPhase::backward) ? backward_module_ : ModuleId();
}

OpenMarks::Change OpenMarks::apply(const Mark& mark, uint32_t position) {
  switch (mark.kind) {
    case MarkKind::phase_begin:
      if (mark.phase == MarkedPhase::backward) {
        --backwards_ahead_;
        backward_module_ = ModuleId();
        backward_node_ = StringId();
      }
      open_.push_back({mark.phase, position});
      return {};
    case MarkKind::phase_end:
      return end_phase(mark.phase);
    case MarkKind::module_begin:
      if (is_registered(mark.module)) modules_.push_back(mark.module);
      return {};
    case MarkKind::module_end: {
      // After an exception inside a module, the modules inside it are still open: closes these too.
      const auto found = std::find(modules_.rbegin(), modules_.rend(), mark.module);
      if (found == modules_.rend()) return {is_registered(mark.module), {}};
      modules_.erase(std::prev(found.base()), modules_.end());
      return {};
    }
    case MarkKind::module_backward:
      backward_module_ = is_registered(mark.module) ? mark.module : ModuleId();
      backward_node_ = mark.text;
      return {};
    case MarkKind::exception:  // the stack was unwound, so nothing is open any more
      open_.clear();
      modules_.clear();
      between_ = Phase::other;
      return {};
    case MarkKind::step:
    case MarkKind::tensors:
    case MarkKind::stats_reset:
    case MarkKind::capture_begin:
    case MarkKind::pool_begin:
    case MarkKind::pool_end:
    case MarkKind::pool_release:
    case MarkKind::other:
      return {};
  }
  return {};
}

OpenMarks::Change OpenMarks::end_phase(MarkedPhase phase) {
  const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) { return open.phase == phase; });
  if (found == open_.rend()) return {true, {}};
  const uint32_t begin = found->begin;
  open_.erase(std::prev(found.base()), open_.end());
  const Change change{false, Ended{begin, !inside(phase)}};
  if (!open_.empty()) return change;
  modules_.clear();
  switch (to_phase(phase)) {
    case Phase::model_to_device:
      between_ = Phase::data;
      break;
    case Phase::forward:
      between_ = backwards_ahead_ > 0 || cut_short_ ? Phase::loss : Phase::other;
      break;
    case Phase::evaluation:  // a teacher's evaluation between a forward and its backward: still the loss of that forward
      between_ = between_ == Phase::loss ? Phase::loss : Phase::evaluation;
      break;
    case Phase::backward:
      between_ = Phase::other;
      break;
    case Phase::optimizer_step:
      between_ = Phase::data;
      break;
    case Phase::zero_grad:
      between_ = between_ == Phase::loss ? Phase::loss : Phase::data;
      break;
    default:
      break;
  }
  return change;
}

}  // namespace gpucast
