// A history that goes on as its last steps did: what it would do in steps that were not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpucast/history.h"

namespace gpucast {

// The positions in the trace's events of the ends of its optimizer steps. `positions`: mark_positions(trace).
std::vector<uint32_t> step_end_positions(const Trace& trace, const std::vector<uint32_t>& positions);

// The same as the number of ops before each end. Empty: the history has no actions, which say where its ops lie.
std::vector<size_t> step_end_ops(const History& history, const Trace& trace);

// The last `period` steps of a history, which do op by op the same as the `period` steps before.
class RepeatedSteps {
 public:
  // `ends`: see step_end_ops(). The history must outlive this.
  RepeatedSteps(const History& history, const std::vector<size_t>& ends, size_t period);

  // False: the steps differ, so how it goes on is unknown.
  bool known() const { return !steps_.empty(); }
  size_t size() const { return steps_.size(); }  // ops of a repetition

  // The history up to the end of its last step, and then `times` more repetitions. A request that was larger than the one a repetition
  // before goes on to grow by as much.
  History continued(size_t times) const;

  // The step in which op `op` of continued() lies.
  int64_t step_of(size_t op, size_t captured) const {
    return static_cast<int64_t>(captured + (op < end_ ? 0 : ((op - end_) / steps_.size()) * period_ + period_));
  }

 private:
  struct Step {
    AllocOp op;
    int64_t rise_bytes;
    size_t repetitions_before, index;  // of the op that made the block
  };

  const History& history_;
  size_t period_, begin_ = 0, end_ = 0;
  std::vector<Step> steps_;
};

}  // namespace gpucast
