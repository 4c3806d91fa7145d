#include "src/kernels/ptx_flow.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "src/kernels/ptx_numbers.h"
#include "src/kernels/ptx_shared.h"

namespace gpucast::ptx {
namespace {

bool ends_block(const Instruction& i) { return i.op == Op::branch || i.op == Op::branch_table || i.op == Op::leave || i.op == Op::stop; }

// Where numbers are stored, the warps of a block take turns after each of these.
bool takes_turns(const Instruction& i) { return (i.addresses > 0 && i.space != Space::parameter) || i.op == Op::barrier; }

bool has_loops(const Kernel& kernel) {
  for (uint32_t n = 0; n < kernel.instructions.size(); ++n) {
    const Instruction& i = kernel.instructions[n];
    if (i.op == Op::branch_table || (i.op == Op::branch && i.value <= n)) return true;
  }
  return false;
}

// Whether all warps of a block meet at each of its barriers, not some at one barrier and some at another.
bool all_warps_meet(const Kernel& kernel) {
  const auto number_of = [&](const Instruction& i) {
    const Register r = i.sources > 0 ? kernel.operands[i.first_operand + i.results] : kNoRegister;
    const auto found = std::find_if(kernel.immediates.begin(), kernel.immediates.end(), [&](const auto& one) { return one.first == r; });
    return found != kernel.immediates.end() ? std::optional(found->second) : std::nullopt;
  };
  std::optional<uint64_t> number;
  for (const Instruction& i : kernel.instructions) {
    if (i.op == Op::barrier_arrive) return false;
    if (i.op != Op::barrier) continue;
    const auto one = number_of(i);
    const bool some = i.results == 0 && i.sources > 1;  // the number of threads that meet
    if (some || !one || (number && *number != *one)) return false;
    number = one;
  }
  return true;
}

// The warps of a block may have to meet at each barrier.
void make_blocks(Kernel* kernel, Follow follow) {
  const auto size = static_cast<uint32_t>(kernel->instructions.size());
  std::vector<uint8_t> leads(size + 1);
  leads[0] = 1;
  const auto target = [&](uint32_t at) { leads[std::min(at, size)] = 1; };
  for (uint32_t n = 0; n < size; ++n) {
    const Instruction& i = kernel->instructions[n];
    if (ends_block(i) || i.op == Op::barrier || (follow == Follow::numbers && takes_turns(i))) leads[n + 1] = 1;
    if (i.op == Op::branch) target(i.value);
  }
  for (const auto& table : kernel->tables) std::for_each(table.begin(), table.end(), target);
  kernel->block_of.assign(size + 1, 0);
  for (uint32_t n = 0; n < size; ++n) {
    if (leads[n] != 0) kernel->blocks.push_back({n, n, 0, {}, 0, 0, false});
    kernel->blocks.back().end = n + 1;
    kernel->block_of[n] = static_cast<uint32_t>(kernel->blocks.size()) - 1;
  }
  kernel->block_of[size] = static_cast<uint32_t>(kernel->blocks.size());
  const auto to_block = [&](uint32_t* at) { *at = kernel->block_of[std::min(*at, size)]; };
  for (Instruction& i : kernel->instructions) {
    if (i.op == Op::branch) to_block(&i.value);
  }
  for (auto& table : kernel->tables) std::for_each(table.begin(), table.end(), [&](uint32_t& at) { to_block(&at); });
  for (Block& block : kernel->blocks) {
    for (uint32_t n = block.first; n < block.end; ++n) {
      const Instruction& i = kernel->instructions[n];
      ++block.works[static_cast<size_t>(i.work)];
      ++block.instructions;
      if (i.guard == kNoRegister) block.flops += i.flops;
    }
  }
}

enum class Ends : uint8_t { all, last };  // which instructions that end a thread count as ways to the end

// Of each block; without the ways to the end from instructions that end a thread.
std::vector<std::vector<uint32_t>> successors_of(const Kernel& kernel) {
  const auto end = static_cast<uint32_t>(kernel.blocks.size());
  std::vector<std::vector<uint32_t>> out(end);
  for (uint32_t b = 0; b < end; ++b) {
    const Instruction& last = kernel.instructions[kernel.blocks[b].end - 1];
    const bool falls = !ends_block(last) || last.guard != kNoRegister;
    if (falls) out[b].push_back(b + 1);
    if (last.op == Op::branch) out[b].push_back(last.value);
    if (last.op == Op::branch_table && last.value < kernel.tables.size()) {
      out[b].insert(out[b].end(), kernel.tables[last.value].begin(), kernel.tables[last.value].end());
    }
    const bool leaves = last.op == Op::leave || last.op == Op::stop;
    if (!leaves && out[b].empty()) out[b].push_back(end);
  }
  return out;
}

// Adds the ways to the end: of all instructions that end a thread, or of the last ret or exit that can be reached.
void add_ends(const Kernel& kernel, Ends ends, std::vector<std::vector<uint32_t>>* successors) {
  const auto end = static_cast<uint32_t>(kernel.blocks.size());
  std::vector<uint8_t> reached(end + 1);
  std::vector<uint32_t> work = {0};
  uint32_t last_end = end;
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    if (b >= end || std::exchange(reached[b], 1) != 0) continue;
    work.insert(work.end(), (*successors)[b].begin(), (*successors)[b].end());
    const bool leaves = kernel.instructions[kernel.blocks[b].end - 1].op == Op::leave;
    if (leaves && (last_end == end || b > last_end)) last_end = b;
  }
  for (uint32_t b = 0; b < end; ++b) {
    const Op op = kernel.instructions[kernel.blocks[b].end - 1].op;
    if ((op == Op::leave || op == Op::stop) && (ends == Ends::all || b == last_end)) (*successors)[b].push_back(end);
  }
}

// The end has none of its own, and is the last one.
std::vector<std::vector<uint32_t>> predecessors_of(const std::vector<std::vector<uint32_t>>& successors) {
  std::vector<std::vector<uint32_t>> out(successors.size() + 1);
  for (uint32_t b = 0; b < successors.size(); ++b) {
    for (const uint32_t s : successors[b]) out[s].push_back(b);
  }
  return out;
}

constexpr uint32_t kNone = ~0U;

// Immediate post-dominators, by Cooper, Harvey and Kennedy's iteration on the reversed graph. kNone: no way leads to the end.
std::vector<uint32_t> post_dominators(const Kernel& kernel, Ends ends) {
  const auto end = static_cast<uint32_t>(kernel.blocks.size());
  std::vector<std::vector<uint32_t>> successors = successors_of(kernel);
  add_ends(kernel, ends, &successors);
  const std::vector<std::vector<uint32_t>> predecessors = predecessors_of(successors);
  std::vector<uint32_t> order(end + 1, kNone), by_order, after(end + 1, kNone);
  std::vector<std::pair<uint32_t, size_t>> stack = {{end, 0}};
  std::vector<uint8_t> seen(end + 1);
  seen[end] = 1;
  while (!stack.empty()) {
    auto& [b, next] = stack.back();
    if (next < predecessors[b].size()) {
      const uint32_t p = predecessors[b][next++];
      if (seen[p] == 0) seen[p] = 1, stack.emplace_back(p, 0);
    } else {
      order[b] = static_cast<uint32_t>(by_order.size());
      by_order.push_back(b);
      stack.pop_back();
    }
  }
  after[end] = end;
  const auto meet = [&](uint32_t a, uint32_t b) {
    while (a != b) {
      while (order[a] < order[b]) a = after[a];
      while (order[b] < order[a]) b = after[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto b = by_order.rbegin(); b != by_order.rend(); ++b) {
      if (*b == end) continue;
      uint32_t found = kNone;
      for (const uint32_t s : successors[*b]) {
        if (after[s] == kNone) continue;
        found = found == kNone ? s : meet(found, s);
      }
      if (found != after[*b]) after[*b] = found, changed = true;
    }
  }
  return after;
}

// Lanes that leave early do not hold up the others: where the ways of a branch meet only at the end, the lanes that stay may meet before.
void find_meeting_points(Kernel* kernel) {
  const auto end = static_cast<uint32_t>(kernel->blocks.size());
  const std::vector<uint32_t> of_all = post_dominators(*kernel, Ends::all);
  const bool meet_late = std::any_of(of_all.begin(), of_all.end() - 1, [&](uint32_t after) { return after >= end; });
  const std::vector<uint32_t> of_last = meet_late ? post_dominators(*kernel, Ends::last) : of_all;
  for (uint32_t b = 0; b < end; ++b) {
    const uint32_t after = of_all[b] >= end ? of_last[b] : of_all[b];
    kernel->blocks[b].after = std::min(after, end);
  }
}

void find_ends_of_loops(Kernel* kernel) {
  const auto branch_of = [&](uint32_t b) -> const Instruction* {
    const Instruction& last = kernel->instructions[kernel->blocks[b].end - 1];
    return last.op == Op::branch ? &last : nullptr;
  };
  for (uint32_t end = 0; end < kernel->blocks.size(); ++end) {
    const Instruction* back = branch_of(end);
    if (back == nullptr || back->value > end) continue;
    for (uint32_t b = back->value; b < end; ++b) {
      const Instruction* branch = branch_of(b);
      Block& block = kernel->blocks[b];
      block.may_end_loop = block.may_end_loop || (branch != nullptr && branch->value > b && block.after > end);
    }
  }
}

class Relevance {
 public:
  explicit Relevance(Kernel* kernel) : kernel_(*kernel), relevant_(kernel->registers + 1), writers_(kernel->registers + 1) {}
  void find(const std::vector<Register>& roots) {
    for (const Register r : roots) add(r);
    for (uint32_t n = 0; n < kernel_.instructions.size(); ++n) {
      const Instruction& i = kernel_.instructions[n];
      for (uint32_t r = 0; r < i.results; ++r) writers_[kernel_.operands[i.first_operand + r]].push_back(n);
      if (i.carry_out) writers_[carry()].push_back(n);
      add_roots(i);
    }
    spread();
  }
  // What is loaded from shared memory was stored there.
  void follow_shared_memory() {
    const auto is_shared = [](const Instruction& i, Op op, Op of_matrices) {
      return i.space == Space::shared && (i.op == op || i.op == of_matrices);
    };
    kernel_.shared_decides = std::any_of(kernel_.instructions.begin(), kernel_.instructions.end(),
                                         [&](const Instruction& i) { return i.relevant && is_shared(i, Op::load, Op::matrix_load); });
    if (!kernel_.shared_decides) return;
    for (const Instruction& i : kernel_.instructions) {
      for (uint32_t s = 0; is_shared(i, Op::store, Op::store) && s < i.sources; ++s) add(kernel_.operands[i.first_operand + i.results + s]);
    }
    spread();
  }
  // With loops, warps run one after another: only numbers that follow from arguments and constants are followed from the first to others.
  void follow_handed_numbers(const std::vector<uint8_t>& other) {
    const auto is_shared_load = [](const Instruction& i) { return i.relevant && i.space == Space::shared && i.op == Op::load; };
    if (std::none_of(kernel_.instructions.begin(), kernel_.instructions.end(), is_shared_load)) return;
    for (Instruction& i : kernel_.instructions) {
      if (i.op != Op::store || i.space != Space::shared || i.type.bits > 64) continue;
      const Register* const sources = kernel_.operands.data() + i.first_operand + i.results;
      i.hands = i.sources > 0 && std::none_of(sources, sources + i.sources, [&](Register r) { return other[r] != 0; });
      if (i.hands) std::for_each(sources, sources + i.sources, [&](Register r) { add(r); });
      kernel_.hands_numbers = kernel_.hands_numbers || i.hands;
    }
    spread();
  }
  void follow_shared_numbers() {
    const std::vector<Register> needed = find_shared_numbers(&kernel_, successors_of(kernel_));
    kernel_.shares_numbers = !needed.empty();
    for (const Register r : needed) add(r);
    spread();
  }
  void find_gathers(const std::vector<uint8_t>& other) {
    for (Instruction& i : kernel_.instructions) {
      i.gathers = i.op == Op::load && i.addresses > 0 && i.space != Space::parameter && other[kernel_.addresses[i.first_address].base] != 0;
    }
  }
  // By register: it holds, or may hold, something that memory, real numbers or other warps decide.
  std::vector<uint8_t> not_from_arguments() const {
    std::vector<uint8_t> out(kernel_.registers);
    const auto decides = [](const Instruction& i) {
      const bool loads = (i.op == Op::load && i.space != Space::parameter) || i.op == Op::atomic || i.op == Op::matrix_load;
      return loads || i.op == Op::unknown_value || i.op == Op::tensor || i.op == Op::tensor_wgmma || i.type.kind == Kind::floating;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (const Instruction& i : kernel_.instructions) {
        bool is_other = decides(i);
        for (uint32_t s = 0; s < i.sources && !is_other; ++s) is_other = out[kernel_.operands[i.first_operand + i.results + s]] != 0;
        for (uint32_t r = 0; r < i.results && is_other; ++r) {
          const Register to = kernel_.operands[i.first_operand + r];
          changed = changed || (to != kNoRegister && out[to] == 0);
          if (to != kNoRegister) out[to] = 1;
        }
      }
    }
    return out;
  }
  void spread() {
    while (!work_.empty()) {
      const Register r = work_.back();
      work_.pop_back();
      for (const uint32_t n : writers_[r]) {
        Instruction& i = kernel_.instructions[n];
        if (i.relevant) continue;
        i.relevant = true;
        if (i.carry_in) add(carry());
        if (i.op == Op::unknown_value || i.op == Op::load || i.op == Op::atomic || i.op == Op::matrix_load) continue;
        for (uint32_t s = 0; s < i.sources; ++s) add(kernel_.operands[i.first_operand + i.results + s]);
      }
    }
  }
  // Relevant registers first; those that no instruction names vanish.
  void renumber() {
    std::vector<uint8_t> used(kernel_.registers);
    for (const Register r : kernel_.operands) used[r] = 1;
    for (const Address& a : kernel_.addresses) used[a.base] = 1;
    for (const Instruction& i : kernel_.instructions) used[i.guard] = 1;
    std::vector<Register> number(kernel_.registers);
    Register next = 1;
    for (const bool relevant : {true, false}) {
      for (Register r = 1; r < kernel_.registers; ++r) {
        if (used[r] != 0 && (relevant_[r] != 0) == relevant) number[r] = next++;
      }
      if (relevant) kernel_.relevant_registers = next;
    }
    std::vector<uint8_t> is_predicate(next);
    for (Register r = 1; r < kernel_.registers; ++r) is_predicate[number[r]] = kernel_.is_predicate[r];
    is_predicate[0] = 0;
    kernel_.is_predicate = std::move(is_predicate);
    kernel_.registers = next;
    for (Register& r : kernel_.operands) r = number[r];
    for (Address& a : kernel_.addresses) a.base = number[a.base];
    for (Instruction& i : kernel_.instructions) i.guard = number[i.guard];
    for (auto& [r, value] : kernel_.immediates) r = number[r];
    for (auto& [r, name] : kernel_.specials) r = number[r];
    const auto unnamed = [&](const auto& pair) { return pair.first == kNoRegister || pair.first >= kernel_.relevant_registers; };
    std::erase_if(kernel_.immediates, unnamed);
    std::erase_if(kernel_.specials, unnamed);
  }

 private:
  Register carry() const { return static_cast<Register>(relevant_.size()) - 1; }  // the flag, as a register after all others
  void add(Register r) {
    if (r == kNoRegister || relevant_[r] != 0) return;
    relevant_[r] = 1;
    work_.push_back(r);
  }
  void add_roots(const Instruction& i) {
    add(i.guard);
    for (uint32_t a = 0; a < i.addresses; ++a) add(kernel_.addresses[i.first_address + a].base);
    const bool reads_values = i.op == Op::branch_table || i.op == Op::copy_async || i.op == Op::expect_bytes || i.op == Op::box_dimension ||
                              i.op == Op::tensor_descriptor || i.op == Op::copy_bulk;
    if (!reads_values) return;
    for (uint32_t s = 0; s < i.sources; ++s) add(kernel_.operands[i.first_operand + i.results + s]);
  }
  Kernel& kernel_;
  std::vector<uint8_t> relevant_;
  std::vector<std::vector<uint32_t>> writers_;
  std::vector<Register> work_;
};

uint32_t latency_of(const Instruction& i) {
  if (i.op == Op::tensor || i.op == Op::tensor_wgmma) return kTensorCycles;
  switch (i.work) {
    case Work::none:
      return 0;
    case Work::fp64:
      return kDoubleCycles;
    case Work::special:
      return kSpecialCycles;
    case Work::division:
      return kDivisionInstructions * kIssueCycles;
    case Work::long_division:
      return kLongDivisionInstructions * kIssueCycles;
    case Work::memory:
      return kSharedCycles;
    default:
      return kArithmeticCycles;
  }
}

// Whether a little arithmetic is all that lies between a block's branch and the point where its lanes meet again, and no address or branch
// follows from it: then it makes little difference which way they take.
void find_short_ways(Kernel* kernel) {
  constexpr uint32_t kFewInstructions = 48;
  const auto is_arithmetic = [&](uint32_t number) {
    const Block& block = kernel->blocks[number];
    for (uint32_t n = block.first; n < block.end; ++n) {
      const Instruction& i = kernel->instructions[n];
      const bool loops = i.op == Op::branch && i.value <= number;
      const bool counts = i.work == Work::memory || i.op == Op::tensor || i.op == Op::tensor_wgmma || i.op == Op::tensor_descriptor ||
                          i.op == Op::barrier || i.op == Op::wait_true || i.op == Op::branch_table || i.op == Op::stop || i.op == Op::leave;
      if (i.relevant || loops || counts) return false;
    }
    return true;
  };
  for (uint32_t b = 0; b < kernel->blocks.size(); ++b) {
    Block& block = kernel->blocks[b];
    uint32_t instructions = 0;
    block.has_short_ways = block.after > b;
    for (uint32_t between = b + 1; block.has_short_ways && between < block.after; ++between) {
      instructions += kernel->blocks[between].instructions;
      block.has_short_ways = instructions <= kFewInstructions && is_arithmetic(between);
    }
  }
}

void find_failures(Kernel* kernel) {
  const auto end = static_cast<uint32_t>(kernel->blocks.size());
  const std::vector<std::vector<uint32_t>> predecessors = predecessors_of(successors_of(*kernel));
  // By block: whether it leads to one that ends with `op`, or to the `first` one.
  const auto leading_to = [&](Op op, std::vector<uint32_t> first) {
    std::vector<uint8_t> leads(end + 1);
    for (uint32_t b = 0; b < end; ++b) {
      if (kernel->instructions[kernel->blocks[b].end - 1].op == op) first.push_back(b);
    }
    while (!first.empty()) {
      const uint32_t b = first.back();
      first.pop_back();
      if (std::exchange(leads[b], 1) == 0) first.insert(first.end(), predecessors[b].begin(), predecessors[b].end());
    }
    return leads;
  };
  const std::vector<uint8_t> to_trap = leading_to(Op::stop, {}), to_end = leading_to(Op::leave, {end});
  for (uint32_t b = 0; b < end; ++b) kernel->blocks[b].fails = to_trap[b] != 0 && to_end[b] == 0;
}

void find_waits(Kernel* kernel) {
  std::vector<uint8_t> written(kernel->registers);
  std::vector<uint32_t> seen(kernel->registers);  // by the number of an instruction, from 1
  for (const Instruction& i : kernel->instructions) {
    for (uint32_t r = 0; r < i.results; ++r) written[kernel->operands[i.first_operand + r]] = 1;
  }
  written[kNoRegister] = 0;
  uint32_t number = 0;
  for (Instruction& i : kernel->instructions) {
    ++number;
    i.first_wait = static_cast<uint32_t>(kernel->waits.size());
    const auto add = [&](Register r) {
      if (written[r] != 0 && std::exchange(seen[r], number) != number) kernel->waits.push_back(r);
    };
    for (uint32_t s = 0; s < i.sources; ++s) add(kernel->operands[i.first_operand + i.results + s]);
    for (uint32_t a = 0; a < i.addresses; ++a) add(kernel->addresses[i.first_address + a].base);
    add(i.guard);
    i.waits = static_cast<uint32_t>(kernel->waits.size()) - i.first_wait;
  }
}

}  // namespace

void find_flow(Kernel* kernel, Follow follow) {
  const bool loops = has_loops(*kernel);
  make_blocks(kernel, follow);
  find_meeting_points(kernel);
  Relevance relevance(kernel);
  relevance.find(follow == Follow::numbers ? find_numbers(kernel) : std::vector<Register>());
  if (follow == Follow::addresses) {
    const std::vector<uint8_t> other = relevance.not_from_arguments();
    relevance.find_gathers(other);
    if (loops) {
      if (all_warps_meet(*kernel)) {
        relevance.follow_shared_numbers();
      } else {
        relevance.follow_handed_numbers(other);
      }
    } else {
      relevance.follow_shared_memory();
    }
  }
  find_short_ways(kernel);
  find_ends_of_loops(kernel);
  find_failures(kernel);
  relevance.renumber();
  find_waits(kernel);
  for (Instruction& i : kernel->instructions) {
    i.latency = latency_of(i);
    if (i.addresses > 0) i.request = kernel->requests++;
  }
}

}  // namespace gpucast::ptx
