#include "src/kernels/ptx_shared.h"

#include <algorithm>
#include <utility>

namespace gpucast::ptx {
namespace {

// By register: whether it may hold a real number, or something made of one.
std::vector<uint8_t> find_real(const Kernel& kernel) {
  std::vector<uint8_t> out(kernel.registers);
  for (bool changed = true; changed;) {
    changed = false;
    for (const Instruction& i : kernel.instructions) {
      const Register* const operands = kernel.operands.data() + i.first_operand;
      bool real = i.type.kind == Kind::floating || i.op == Op::unknown_value || i.op == Op::tensor || i.op == Op::tensor_wgmma;
      for (uint32_t s = 0; s < i.sources && !real; ++s) real = out[operands[i.results + s]] != 0;
      for (uint32_t r = 0; r < i.results && real; ++r) {
        if (operands[r] != kNoRegister && std::exchange(out[operands[r]], 1) == 0) changed = true;
      }
    }
  }
  return out;
}

// What some instructions follow from: their operands, and the branches that decide whether they run.
class Slice {
 public:
  Slice(Kernel* kernel, const std::vector<std::vector<uint32_t>>& successors)
      : kernel_(*kernel), writers_(kernel->registers + 1), taken_(kernel->registers + 1), deciding_(kernel->blocks.size()) {
    for (uint32_t n = 0; n < kernel_.instructions.size(); ++n) {
      const Instruction& i = kernel_.instructions[n];
      for (uint32_t r = 0; r < i.results; ++r) writers_[kernel_.operands[i.first_operand + r]].push_back(n);
      if (i.carry_out) writers_[kernel_.registers].push_back(n);
    }
    for (uint32_t b = 0; b < kernel_.blocks.size(); ++b) find_between(b, successors);
  }

  void take(uint32_t n) {
    work_.push_back(n);
    while (!work_.empty()) {
      Instruction& i = kernel_.instructions[work_.back()];
      const uint32_t block = kernel_.block_of[work_.back()];
      work_.pop_back();
      if (std::exchange(i.shares, true)) continue;
      add(i.guard);
      if (i.carry_in) add(kernel_.registers);
      for (uint32_t a = 0; a < i.addresses; ++a) add(kernel_.addresses[i.first_address + a].base);
      for (uint32_t s = 0; s < i.sources; ++s) add(kernel_.operands[i.first_operand + i.results + s]);
      work_.insert(work_.end(), deciding_[block].begin(), deciding_[block].end());
    }
  }
  std::vector<Register> registers() const {
    std::vector<Register> out;
    for (Register r = 1; r < kernel_.registers; ++r) {
      if (taken_[r] != 0) out.push_back(r);
    }
    return out;
  }

 private:
  void add(Register r) {
    if (r != kNoRegister && std::exchange(taken_[r], 1) == 0) work_.insert(work_.end(), writers_[r].begin(), writers_[r].end());
  }
  // The blocks between a branch and where its ways meet.
  void find_between(uint32_t branch, const std::vector<std::vector<uint32_t>>& successors) {
    if (successors[branch].size() < 2) return;
    Block& from = kernel_.blocks[branch];
    std::vector<uint8_t> seen(kernel_.blocks.size());
    std::vector<uint32_t> work = successors[branch];
    while (!work.empty()) {
      const uint32_t b = work.back();
      work.pop_back();
      if (b == from.after || b >= kernel_.blocks.size() || std::exchange(seen[b], 1) != 0) continue;
      deciding_[b].push_back(from.end - 1);
      const Block& block = kernel_.blocks[b];
      from.has_barriers =
          from.has_barriers || std::any_of(kernel_.instructions.begin() + block.first, kernel_.instructions.begin() + block.end,
                                           [](const Instruction& i) { return i.op == Op::barrier; });
      work.insert(work.end(), successors[b].begin(), successors[b].end());
    }
  }

  Kernel& kernel_;
  std::vector<std::vector<uint32_t>> writers_;   // by register: instructions; the carry flag is after all others
  std::vector<uint8_t> taken_;                   // by register
  std::vector<std::vector<uint32_t>> deciding_;  // by block: the branches that decide whether it runs
  std::vector<uint32_t> work_;                   // instructions
};

}  // namespace

std::vector<Register> find_shared_numbers(Kernel* kernel, const std::vector<std::vector<uint32_t>>& successors) {
  const std::vector<uint8_t> real = find_real(*kernel);
  std::vector<uint32_t> loads, stores;
  for (uint32_t n = 0; n < kernel->instructions.size(); ++n) {
    const Instruction& i = kernel->instructions[n];
    if (i.space != Space::shared) continue;
    if (i.op == Op::load && i.relevant) loads.push_back(n);
    if (i.op != Op::store || i.type.bits > 64) continue;
    const Register* const sources = kernel->operands.data() + i.first_operand + i.results;
    if (std::none_of(sources, sources + i.sources, [&](Register r) { return real[r] != 0; })) stores.push_back(n);
  }
  if (loads.empty() || stores.empty()) return {};
  Slice slice(kernel, successors);
  for (const uint32_t n : loads) slice.take(n);
  for (const uint32_t n : stores) slice.take(n);
  for (uint32_t n = 0; n < kernel->instructions.size(); ++n) {
    const Instruction& i = kernel->instructions[n];
    if (i.op == Op::leave || (i.op == Op::barrier && i.guard != kNoRegister)) slice.take(n);
  }
  return slice.registers();
}

}  // namespace gpucast::ptx
