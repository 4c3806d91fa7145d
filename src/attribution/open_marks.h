// The phases, modules and node of autograd that are open after a mark. Marks must be given in their order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpucast/trace.h"
#include "src/attribution/attribution.h"

namespace gpucast {

class OpenMarks {
 public:
  // `cut_short`: the trace may have ended just before a backward.
  explicit OpenMarks(const Trace& trace, bool cut_short = false);

  struct Ended {
    uint32_t begin = 0;     // position of the mark that began it
    bool outermost = true;  // no phase of its kind is open around it
  };
  struct Change {
    bool unbalanced = false;     // the mark ends something that had not begun
    std::optional<Ended> ended;  // a phase
  };
  // The change at the end of a phase contains the `position` given at its begin.
  Change apply(const Mark& mark, uint32_t position = 0);

  bool empty() const { return open_.empty(); }
  size_t size() const { return open_.size(); }
  bool inside(MarkedPhase phase) const;
  // The innermost phase. A forward that is recomputed for backward counts as backward. Between phases: the usual one at this point.
  Phase phase() const;
  ModuleId module() const;
  // A forward that is computed again inside of backward belongs to no node.
  StringId node() const { return !open_.empty() && open_.back().phase == MarkedPhase::backward ? backward_node_ : StringId(); }

 private:
  struct Open {
    MarkedPhase phase;
    uint32_t begin;
  };

  bool is_registered(ModuleId id) const { return id.valid() && id.index() < module_count_; }
  Change end_phase(MarkedPhase phase);

  size_t module_count_;
  bool cut_short_;
  int64_t backwards_ahead_ = 0;
  std::vector<Open> open_;
  std::vector<ModuleId> modules_;
  ModuleId backward_module_;
  StringId backward_node_;
  Phase between_ = Phase::setup;
};

}  // namespace gpucast
