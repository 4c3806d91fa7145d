// A warp whose values in memory are followed (stored_numbers.h): what its instructions read and write. Nothing is counted.
#include <algorithm>
#include <bit>

#include "src/kernels/lane_bits.h"
#include "src/kernels/launch_memory.h"
#include "src/kernels/warp.h"

namespace gpucast::ptx {
namespace {

uint64_t combined(Mode mode, bool is_signed, uint32_t bits, uint64_t old, uint64_t operand, uint64_t other) {
  const bool less = is_signed ? with_sign(operand, bits) < with_sign(old, bits) : low_bits(operand, bits) < low_bits(old, bits);
  switch (mode) {
    case Mode::sum:
      return low_bits(old + operand, bits);
    case Mode::lowest:
      return less ? operand : old;
    case Mode::highest:
      return less ? old : operand;
    case Mode::both:
      return old & operand;
    case Mode::either:
      return old | operand;
    case Mode::exclusive:
      return old ^ operand;
    case Mode::compare_exchange:
      return low_bits(old, bits) == low_bits(operand, bits) ? other : old;
    default:
      return operand;
  }
}

}  // namespace

bool Warp::take_turn() {
  if (has_ended()) return false;
  if (leave_path()) return true;
  const Path path = paths_.back();
  const Block& block = kernel_.blocks[path.block];
  steps_ += block.instructions;
  for (uint32_t n = block.first; n < block.end && !memory_->failed; ++n) step_values(kernel_.instructions[n], path.lanes);
  if (!memory_->failed) end_block(block, path.block);
  return true;
}

void Warp::share_to_barrier(uint64_t most_steps, SharedLoads* loads) {
  while (!paths_.empty() && !waits_ && !memory_->failed && steps_ <= most_steps) {
    if (leave_path()) continue;
    const Path path = paths_.back();
    const Block& block = kernel_.blocks[path.block];
    for (uint32_t n = block.first; n < block.end && !memory_->failed; ++n) {
      const Instruction& i = kernel_.instructions[n];
      if (!i.shares && i.op != Op::barrier) continue;
      ++steps_;
      if (i.op == Op::atomic && i.space != Space::shared) {  // other blocks take part
        unknown_results(i, guard_of(i, path.lanes));
        continue;
      }
      step_values(i, path.lanes);
      if (i.op != Op::load || i.space != Space::shared) continue;
      SharedLoad& load = (*loads)[i.request].emplace_back();
      load.lanes = guard_of(i, path.lanes);
      for (uint32_t r = 0; r < i.results; ++r) {
        load.values.push_back(values(result(i, r)));
        load.assumed.push_back(assumed_[result(i, r)]);
      }
    }
    const Instruction& last = kernel_.instructions[block.end - 1];
    if ((last.op == Op::branch || last.op == Op::branch_table) && !last.shares) {
      paths_.back().block = block.after;
      waits_ = waits_ || block.has_barriers;
    } else if (!memory_->failed) {
      end_block(block, path.block);
    }
  }
}

void Warp::step_values(const Instruction& i, LaneMask lanes) {
  LaneMask maybe = 0;
  if (i.guard != kNoRegister) {
    maybe = assumed_[i.guard] & lanes;
    lanes = guard_of(i, lanes) & ~maybe;
  }
  switch (i.op) {
    case Op::load:
      if (i.relevant) load_values(i, lanes | maybe);
      break;
    case Op::store:
      store_values(i, lanes, maybe);
      break;
    case Op::atomic:
    case Op::reduce:
      combine_values(i, lanes, maybe);
      break;
    case Op::matrix_load:
      if (i.relevant) load_matrices(i, lanes);
      break;
    case Op::matrix_store:  // its registers hold real numbers
    case Op::copy_async:
      copy_values(i, lanes, maybe);
      return;
    case Op::barrier:
      // Lanes of other ways do not come along.
      if (lanes == 0 || maybe != 0) {
        memory_->failed = memory_->failed || maybe != 0;
        return;
      }
      waits_ = true;
      return unknown_results(i, lanes);
    case Op::branch:
      // follow_branch() would choose a way.
      if (maybe != 0 && !kernel_.blocks[paths_.back().block].has_short_ways &&
          kernel_.fails(i.value) == kernel_.fails(paths_.back().block + 1)) {
        memory_->failed = true;
      }
      return;
    case Op::branch_table:
      if (maybe != 0 || (assumed_[source(i, 0)] & lanes) != 0) memory_->failed = true;
      return;
    case Op::nothing:
    case Op::leave:
      if (maybe != 0) memory_->failed = true;
      return;
    case Op::stop:  // what is not known does not fail
      return;
    default:
      if (i.relevant) compute(i, lanes | maybe);
  }
  for (uint32_t r = 0; maybe != 0 && r < i.results; ++r) {
    if (const Register to = result(i, r); to != kNoRegister) assumed_[to] |= maybe;
  }
}

uint64_t Warp::place_of(const Instruction& i, uint32_t number, uint32_t lane, bool* shared) {
  const Address& address = kernel_.addresses[i.first_address + number];
  if ((assumed_[address.base] >> lane & 1) != 0) memory_->failed = true;
  const uint64_t at = values(address.base)[lane] + static_cast<uint64_t>(address.offset), window = at & kWindowMask;
  const bool copies_there = i.op == Op::copy_async && number == 0;
  *shared = i.space == Space::shared || window == kSharedWindow || copies_there;
  return *shared ? low_bits(at, 32) : at;
}

// While the warp counts. False: the instruction's results are what they are without.
bool Warp::follow_shared(const Instruction& i, LaneMask lanes) {
  const Address& address = kernel_.addresses[i.first_address];
  const bool reads = i.op == Op::load || i.op == Op::matrix_load;
  const bool anywhere = (assumed_[address.base] & lanes) != 0 || (i.guard != kNoRegister && (assumed_[i.guard] & lanes) != 0);
  if (reads && (anywhere || !i.relevant)) return false;
  if (i.op == Op::load) {
    load_values(i, lanes);
  } else if (i.op == Op::matrix_load) {
    load_matrices(i, lanes);
  } else if (anywhere || i.op != Op::store) {
    memory_->begin_block();  // it may have written anywhere
  } else {
    store_values(i, lanes, 0);
  }
  return reads;
}

void Warp::load_values(const Instruction& i, LaneMask lanes) {
  if (i.space == Space::parameter || i.space == Space::local || i.space == Space::constant) {
    LaneValues addresses;
    addresses_of(i, 0, lanes, &addresses);
    return load(i, lanes, addresses);
  }
  const uint32_t bytes = std::max(i.type.bits / 8, 1);
  const bool is_signed = i.type.kind == Kind::signed_integer;
  for (uint32_t r = 0; r < i.results; ++r) {
    LaneValues loaded = {};
    LaneMask assumed = bytes > 8 ? kAllLanes : 0;
    for (LaneMask left = bytes > 8 ? 0 : lanes; left != 0; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(left));
      bool shared = false;
      const uint64_t at = place_of(i, 0, lane, &shared) + uint64_t{r} * bytes;
      if (memory_->failed) return;
      if (!shared && (at & kWindowMask) == kVariableWindow) {
        assumed |= 1U << lane;
        continue;
      }
      const auto value = shared ? memory_->read_shared(at, bytes) : memory_->read(at, bytes);
      loaded[lane] = is_signed ? static_cast<uint64_t>(with_sign(value.value_or(0), 8 * bytes)) : value.value_or(0);
      if (!value) assumed |= 1U << lane;
    }
    const Register to = result(i, r);
    if (to != kNoRegister && to < kernel_.relevant_registers) write(to, lanes, loaded, assumed);
  }
}

std::optional<uint64_t> Warp::known_value(Register r, uint32_t lane) const {
  const bool is_known = r != kNoRegister && r < kernel_.relevant_registers && (assumed_[r] >> lane & 1) == 0;
  return is_known ? std::optional(values(r)[lane]) : std::nullopt;
}

void Warp::write_memory(bool shared, uint64_t at, uint32_t bytes, std::optional<uint64_t> value) {
  if (shared) {
    memory_->write_shared(at, bytes, value);
  } else if ((at & kWindowMask) == 0) {
    memory_->write(at, bytes, value);
  }
}

void Warp::store_values(const Instruction& i, LaneMask lanes, LaneMask maybe) {
  if (i.space == Space::parameter || i.space == Space::local) return;
  const uint32_t bytes = std::max(i.type.bits / 8, 1), width = std::max<uint32_t>(1, i.bytes / bytes);
  for (LaneMask left = lanes | maybe; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    bool shared = false;
    const uint64_t at = place_of(i, 0, lane, &shared);
    if (memory_->failed) return;
    const bool stores = (lanes >> lane & 1) != 0 && bytes <= 8;
    for (uint32_t s = 0; s < std::min<uint32_t>(width, i.sources); ++s)
      write_memory(shared, at + uint64_t{s} * bytes, bytes, stores ? known_value(source(i, s), lane) : std::nullopt);
  }
}

void Warp::combine_values(const Instruction& i, LaneMask lanes, LaneMask maybe) {
  const uint32_t bytes = std::max(i.type.bits / 8, 1), width = std::max<uint32_t>(1, i.bytes / bytes);
  const bool is_signed = i.type.kind == Kind::signed_integer, whole = i.type.kind != Kind::floating && bytes <= 8 && i.mode != Mode::none;
  LaneValues before = {};
  LaneMask unknown = 0;
  for (LaneMask left = lanes | maybe; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    bool shared = false;
    const uint64_t at = place_of(i, 0, lane, &shared);
    if (memory_->failed) return;
    std::optional<uint64_t> old, now;
    if (whole && width == 1) old = shared ? memory_->read_shared(at, bytes) : memory_->read(at, bytes);
    const auto operand = known_value(source(i, 0), lane);
    const auto other = i.mode == Mode::compare_exchange ? known_value(source(i, 1), lane) : std::optional<uint64_t>(0);
    if (old && operand && other && (lanes >> lane & 1) != 0) {
      const uint64_t then = *old;
      before[lane] = is_signed ? static_cast<uint64_t>(with_sign(then, 8 * bytes)) : then;
      now = low_bits(combined(i.mode, is_signed, 8 * bytes, then, *operand, *other), 8 * bytes);
    } else {
      unknown |= 1U << lane;
    }
    for (uint32_t s = 0; s < width; ++s) write_memory(shared, at + uint64_t{s} * bytes, bytes, now);
  }
  if (i.op == Op::atomic && i.results == 1) {
    if (const Register to = result(i, 0); to < kernel_.relevant_registers) write(to, lanes, before, unknown);
  } else {
    unknown_results(i, lanes);
  }
}

// Matrices of 8 rows of 16 bytes: lane 8 m + r states row r of matrix m. Register m of lane l gets 4 bytes of its row l / 4, or,
// transposed, two numbers of its column l / 4.
void Warp::load_matrices(const Instruction& i, LaneMask lanes) {
  if (lanes != kAllLanes) return unknown_results(i, lanes);
  std::array<uint64_t, kLanes> rows = {};
  for (uint32_t lane = 0; lane < std::min<uint32_t>(kLanes, 8U * i.results); ++lane) {
    bool shared = false;
    rows[lane] = place_of(i, 0, lane, &shared);
  }
  if (memory_->failed) return;
  for (uint32_t m = 0; m < i.results; ++m) {
    LaneValues loaded = {};
    LaneMask assumed = i.type.bits != 16 || m >= 4 ? kAllLanes : 0;
    for (uint32_t lane = 0; assumed != kAllLanes && lane < static_cast<uint32_t>(kLanes); ++lane) {
      const uint64_t major = lane / 4, minor = uint64_t{2} * (lane % 4), row = uint64_t{8} * m + (i.wraps ? minor : major);
      const auto low = memory_->read_shared(rows[row] + 2 * (i.wraps ? major : minor), 2);
      const auto high = memory_->read_shared(i.wraps ? rows[row + 1] + 2 * major : rows[row] + 2 * minor + 2, 2);
      loaded[lane] = low.value_or(0) | high.value_or(0) << 16;
      if (!low || !high) assumed |= 1U << lane;
    }
    if (const Register to = result(i, m); to != kNoRegister && to < kernel_.relevant_registers) write(to, lanes, loaded, assumed);
  }
}

// To shared memory: a copy's bytes, at once; of a matrix that is stored, that they are not known.
void Warp::copy_values(const Instruction& i, LaneMask lanes, LaneMask maybe) {
  for (LaneMask left = lanes | maybe; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    bool shared = false, from_shared = false;
    const uint64_t to = place_of(i, 0, lane, &shared);
    if (i.op == Op::matrix_store) {
      for (uint32_t b = 0; b < 16; b += 8) memory_->write_shared(to + b, 8, std::nullopt);
      continue;
    }
    const bool known = (lanes >> lane & 1) != 0 && (!i.wraps || (assumed_[source(i, 1)] >> lane & 1) == 0);
    const uint64_t reads = i.wraps ? std::min<uint64_t>(i.bytes, low_bits(values(source(i, 1))[lane], 32)) : i.bytes;
    const uint64_t from = reads > 0 ? place_of(i, 1, lane, &from_shared) : 0;
    if (memory_->failed) return;
    for (uint32_t b = 0; b < i.bytes; ++b) {
      const auto byte = !known ? std::nullopt : b < reads ? memory_->read(from + b, 1) : std::optional<uint64_t>(0);
      memory_->write_shared(to + b, 1, byte);
    }
  }
}

}  // namespace gpucast::ptx
