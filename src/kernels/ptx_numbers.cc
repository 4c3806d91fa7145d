#include "src/kernels/ptx_numbers.h"

#include <algorithm>

namespace gpucast::ptx {
namespace {

constexpr size_t kMostLoads = 16;  // that one number depends on

// What a register's value depends on.
struct Origin {
  bool knowable = true;         // no arithmetic of real numbers
  uint64_t pointers = 0;        // parameters of 8 bytes, by number
  std::vector<uint64_t> loads;  // of each load the pointers that its address depends on

  bool add(const Origin& other) {
    bool changed = (knowable && !other.knowable) || (other.pointers & ~pointers) != 0;
    knowable = knowable && other.knowable;
    pointers |= other.pointers;
    for (const uint64_t load : other.loads) changed = add_load(load) || changed;
    return changed;
  }
  bool add_load(uint64_t from) {
    if (!knowable || std::find(loads.begin(), loads.end(), from) != loads.end()) return false;
    loads.push_back(from);
    if (loads.size() > kMostLoads || from == 0) knowable = false;
    return true;
  }
};

class Origins {
 public:
  explicit Origins(const Kernel& kernel) : kernel_(kernel), of_(kernel.registers) {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Instruction& i : kernel.instructions) changed = follow(i) || changed;
    }
  }
  const Origin& of(Register r) const { return of_[r]; }

 private:
  Register source(const Instruction& i, uint32_t n) const { return kernel_.operands[i.first_operand + i.results + n]; }
  Origin loaded(const Instruction& i, uint32_t address) const {
    const Address& from = kernel_.addresses[i.first_address + address];
    Origin out;
    if ((static_cast<uint64_t>(from.offset) & kWindowMask) == kVariableWindow) return out;
    out = of_[from.base];
    out.add_load(out.pointers);
    out.pointers = 0;
    return out;
  }
  Origin parameter(const Instruction& i) const {
    Origin out;
    const auto offset = static_cast<uint64_t>(kernel_.addresses[i.first_address].offset) & ~kWindowMask;
    for (size_t p = 0; p < std::min<size_t>(kernel_.parameters.size(), 64); ++p) {
      const Parameter& one = kernel_.parameters[p];
      if (one.offset == offset && one.bytes == 8) out.pointers |= uint64_t{1} << p;
    }
    return out;
  }
  bool follow(const Instruction& i) {
    Origin from;
    for (uint32_t s = 0; s < i.sources; ++s) from.add(of_[source(i, s)]);
    bool changed = false;
    const bool shared = i.space == Space::shared;
    switch (i.op) {
      case Op::load:
        from = i.space == Space::parameter ? parameter(i) : shared ? shared_ : i.space == Space::constant ? Origin() : loaded(i, 0);
        break;
      case Op::matrix_load:
        from = shared_;
        break;
      case Op::atomic:
        if (shared) changed = shared_.add(from);
        from.add(shared ? shared_ : loaded(i, 0));
        break;
      case Op::store:
      case Op::reduce:
      case Op::matrix_store:
        if (shared) changed = shared_.add(from);
        break;
      case Op::copy_async:
        changed = shared_.add(loaded(i, 1));
        break;
      case Op::unknown_value:
      case Op::tensor:
      case Op::tensor_wgmma:
        from.knowable = false;
        break;
      default:
        break;
    }
    if (i.guard != kNoRegister) from.add(of_[i.guard]);
    for (uint32_t r = 0; r < i.results; ++r) {
      const Register to = kernel_.operands[i.first_operand + r];
      if (to != kNoRegister) changed = of_[to].add(from) || changed;
    }
    return changed;
  }

  const Kernel& kernel_;
  std::vector<Origin> of_;  // by register
  Origin shared_;           // of all shared memory
};

// What the values in memory are not followed through.
bool is_beyond(const Instruction& i) {
  return i.op == Op::copy_bulk || i.op == Op::tensor_descriptor || i.op == Op::expect_bytes || i.op == Op::box_dimension ||
         i.op == Op::copy_descriptor || i.op == Op::wait_true || i.op == Op::barrier_arrive;
}

}  // namespace

std::vector<Register> find_numbers(Kernel* kernel) {
  std::vector<Register> out;
  if (std::any_of(kernel->instructions.begin(), kernel->instructions.end(), is_beyond)) return out;
  const Origins origins(*kernel);
  const auto is_number = [&](const Instruction& i, Register r) {
    return origins.of(r).knowable && !(i.op != Op::store && i.type.kind == Kind::floating);
  };
  for (const Instruction& i : kernel->instructions) {
    const bool stores = i.op == Op::store || i.op == Op::reduce || i.op == Op::atomic || i.op == Op::matrix_store;
    if (!stores && i.op != Op::copy_async) continue;
    const bool to_card = stores && (i.space == Space::global || i.space == Space::generic);
    for (uint32_t s = 0; s < i.sources; ++s) {
      const Register r = kernel->operands[i.first_operand + i.results + s];
      if (!is_number(i, r)) continue;
      out.push_back(r);
      if (!to_card || !origins.of(i.guard).knowable) continue;
      Origin needs = origins.of(r);
      needs.add(origins.of(i.guard));
      if (std::find(kernel->stored_numbers.begin(), kernel->stored_numbers.end(), needs.loads) == kernel->stored_numbers.end())
        kernel->stored_numbers.push_back(needs.loads);
    }
  }
  return out;
}

}  // namespace gpucast::ptx
