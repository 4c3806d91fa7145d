// Blocks that stay in the host's memory: data loading, the model before its move to the device, scalars.
//
// With the marks of `gpucast profile` the trace shows what moves to the device. Without them the script used the CPU as its only device,
// and all blocks of the training loop count as the device's, except the data loader's.

#include <algorithm>
#include <unordered_set>

#include "src/orchestrate/rules.h"

namespace gpucast {
namespace {

class HostFilter {
 public:
  HostFilter(const ProfileFacts& facts, const Sequence& sequence) : facts_(facts), phases_(facts.phases) {
    for (const PhaseWindow& window : phases_.windows) {
      if (window.phase != Phase::model_to_device) continue;
      moves_ = true;
      first_move_end_ns_ = std::min(first_move_end_ns_, window.end_ns);
    }
    for (const GpuBlock& block : sequence.blocks) {
      if (block.role == Role::parameter) parameter_sizes_.insert(block.size_bytes);
    }
    moves_ = moves_ || !phases_.to_device.empty();
  }

  bool stays_on_host(const GpuBlock& block) const {
    const int64_t time_ns = block.alloc.time_ns;
    const PhaseWindow* window = phases_.window_at(time_ns);
    if (moved(block.span, window)) return false;
    if (scalar(block, window)) return true;
    if (block.role == Role::parameter || block.role == Role::buffer || block.role == Role::optimizer_state) return false;
    if (time_ns < phases_.loop_begin_ns) return !copy_of_model(block);
    if (window != nullptr && window->phase == Phase::data) return moves_ || !reaches_forward(block, *window);
    if (window != nullptr) return false;
    // Between phases the block is the device's if it comes after a move of the same step, or if the trace shows no moves at all.
    return moves_ && !follows_a_move(time_ns);
  }

 private:
  bool moved(SpanIndex span, const PhaseWindow* window) const {
    if (window != nullptr && window->phase == Phase::model_to_device) return true;
    return moves_ && (facts_.named_span_around(span, "gpucast.to_device#tensor") != kNoSpan ||
                      facts_.named_span_around(span, "gpucast.on_device") != kNoSpan);
  }

  // A number wrapped by an operator, or an optimizer's count of steps: a tensor on the CPU even on a machine with a GPU.
  bool scalar(const GpuBlock& block, const PhaseWindow* window) const {
    if (block.size_bytes > 8) return false;
    if (window != nullptr && window->phase == Phase::optimizer_step) return true;
    const SpanIndex op = facts_.computing_op(block.span);
    return op != kNoSpan && block.free.time_ns <= facts_.span(op).end_ns;
  }

  // copy.deepcopy of a model on the device, for example for an average of the weights.
  bool copy_of_model(const GpuBlock& block) const {
    return block.alloc.time_ns > first_move_end_ns_ && block.free.time_ns > phases_.loop_begin_ns &&
           parameter_sizes_.contains(block.size_bytes);
  }

  bool reaches_forward(const GpuBlock& block, const PhaseWindow& data) const {
    const auto next = std::partition_point(phases_.forwards.begin(), phases_.forwards.end(),
                                           [&](const PhaseWindow& forward) { return forward.begin_ns < data.end_ns; });
    return next != phases_.forwards.end() && block.free.time_ns > next->begin_ns;
  }

  bool follows_a_move(int64_t time_ns) const {
    const PhaseWindow* nearest = nullptr;  // the latest window that began before
    const auto look = [&](const std::vector<PhaseWindow>& list) {
      const auto at = std::partition_point(list.begin(), list.end(), [&](const PhaseWindow& w) { return w.begin_ns < time_ns; });
      if (at == list.begin()) return;
      if (nearest == nullptr || std::prev(at)->begin_ns > nearest->begin_ns) nearest = &*std::prev(at);
    };
    look(phases_.to_device);
    look(phases_.forwards);
    look(phases_.backwards);
    const PhaseWindow* device = nearest;
    nearest = nullptr;
    look(phases_.optimizer_steps);
    look(phases_.data);
    return device != nullptr && (nearest == nullptr || device->begin_ns > nearest->begin_ns);
  }

  const ProfileFacts& facts_;
  const ProfilePhases& phases_;
  bool moves_ = false;  // the trace shows what moves to the device
  int64_t first_move_end_ns_ = INT64_MAX;
  std::unordered_set<int64_t> parameter_sizes_;
};

}  // namespace

void drop_host_data(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  const HostFilter filter(facts, *sequence);
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (facts.cpu.blocks[i].before_start()) {
      // Allocated before the trace: it is the device's if the loop frees it.
      const PhaseWindow* window = facts.phases.window_at(block.free.time_ns);
      if (window == nullptr || window->phase == Phase::data) {
        block.drop(Fate::before_trace, "host");
      } else if (window->phase == Phase::zero_grad) {
        block.role = Role::gradient;
      }
      continue;
    }
    if (filter.stays_on_host(block)) block.drop(Fate::host, "host");
  }
}

}  // namespace gpucast
