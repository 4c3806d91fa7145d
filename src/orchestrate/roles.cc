#include "src/orchestrate/roles.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

namespace gpucast {
namespace {

// Finds the block that was at an address at a given time.
class TracedBlockFinder {
 public:
  explicit TracedBlockFinder(const ProfileFacts& facts, const Sequence& sequence) : sequence_(sequence) {
    for (uint32_t i = 0; i < sequence.traced; ++i) by_address_[facts.cpu.blocks[i].address].push_back(i);
  }
  uint32_t block_at(uint64_t address, Moment when) const {
    const auto found = by_address_.find(address);
    if (found == by_address_.end()) return UINT32_MAX;
    for (const uint32_t i : found->second) {
      const GpuBlock& block = sequence_.blocks[i];
      if (block.alloc <= when && when < block.free) return i;
    }
    return UINT32_MAX;
  }

 private:
  const Sequence& sequence_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_address_;
};

bool from_tables(const ProfileFacts& facts, Sequence* sequence) {
  if (facts.metadata.tables.empty()) return false;
  const TracedBlockFinder finder(facts, *sequence);
  constexpr std::string_view kMark = "gpucast.tensors#";
  bool any = false;
  // If several kinds share a block, the kind that lives longest gives the role: the order of the enum.
  for (SpanIndex i = 0; i < facts.trace.spans.size(); ++i) {
    const std::string_view name = facts.name(i);
    if (name.substr(0, kMark.size()) != kMark) continue;
    size_t number = 0;
    const std::string_view digits = name.substr(kMark.size());
    if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc() || number >= facts.metadata.tables.size())
      continue;
    const Moment when{facts.span(i).begin_ns, 0};
    for (const TensorRow& row : facts.metadata.tables[number].rows) {
      const uint32_t block = row.address == 0 ? UINT32_MAX : finder.block_at(row.address, when);
      if (block == UINT32_MAX || row.role == Role::none) continue;
      GpuBlock& found = sequence->blocks[block];
      any = true;
      if (found.role != Role::none && found.role <= row.role) continue;
      found.role = row.role;
      found.tensor = &row;
    }
  }
  return any;
}

bool alive_at(const GpuBlock& block, int64_t time_ns) { return block.alloc.time_ns <= time_ns && time_ns < block.free.time_ns; }

// The first window of the list that begins at or after a time; nullptr: none.
const PhaseWindow* next_window(const std::vector<PhaseWindow>& list, int64_t time_ns) {
  const auto at = std::partition_point(list.begin(), list.end(), [&](const PhaseWindow& window) { return window.begin_ns < time_ns; });
  return at == list.end() ? nullptr : &*at;
}

bool in_code_of(const ProfileFacts& facts, SpanIndex span, std::string_view folder) {
  for (; span != kNoSpan; span = facts.tree.parent[span]) {
    if (facts.span(span).kind == SpanKind::function && facts.name(span).find(folder) != std::string_view::npos) return true;
  }
  return false;
}

void by_inference(const ProfileFacts& facts, Sequence* sequence) {
  const ProfilePhases& phases = facts.phases;
  std::map<int64_t, int64_t> gradient_sizes;  // size -> number of gradients, in the step with the most sizes
  std::map<int32_t, std::map<int64_t, int64_t>> by_step;
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (facts.cpu.blocks[i].before_start()) continue;
    const PhaseWindow* window = phases.window_at(block.alloc.time_ns);
    if (window == nullptr) continue;
    if (window->phase == Phase::backward) {
      const PhaseWindow* step = next_window(phases.optimizer_steps, window->end_ns);
      const int64_t until_ns = step != nullptr ? step->begin_ns : window->end_ns;
      if (!alive_at(block, until_ns)) continue;
      block.role = Role::gradient;
      ++by_step[window->step][block.size_bytes];
    } else if (window->phase == Phase::optimizer_step && alive_at(block, window->end_ns) && block.size_bytes > 8) {
      block.role = Role::optimizer_state;
    }
  }
  for (const auto& [step, sizes] : by_step) {
    if (sizes.size() > gradient_sizes.size()) gradient_sizes = sizes;
  }
  // Buffers are allocated among the parameters.
  size_t first = SIZE_MAX, last = 0;
  std::vector<size_t> others;
  for (size_t i = 0; i < sequence->traced; ++i) {
    GpuBlock& block = sequence->blocks[i];
    if (facts.cpu.blocks[i].before_start() || block.role != Role::none) continue;
    if (block.alloc.time_ns >= phases.loop_begin_ns || !alive_at(block, phases.loop_begin_ns)) continue;
    const auto wanted = gradient_sizes.find(block.size_bytes);
    if (in_code_of(facts, block.span, "torch/optim/")) {
      block.role = Role::optimizer_state;
    } else if (wanted != gradient_sizes.end() && wanted->second > 0) {
      --wanted->second;
      block.role = Role::parameter;
      first = std::min(first, i);
      last = i;
    } else {
      others.push_back(i);
    }
  }
  for (const size_t i : others) {
    if (i > first && (i < last || in_code_of(facts, sequence->blocks[i].span, "torch/nn/modules/")))
      sequence->blocks[i].role = Role::buffer;
  }
}

}  // namespace

void assign_roles(const ProfileFacts& facts, Sequence* sequence) {
  if (!from_tables(facts, sequence)) by_inference(facts, sequence);
}

}  // namespace gpucast
