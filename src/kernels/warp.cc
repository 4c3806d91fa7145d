#include "src/kernels/warp.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

namespace gpucast::ptx {
namespace {

constexpr uint32_t kGuesses = 16;  // as often an assumed value may keep a warp in a loop
constexpr size_t kMostLogged = 1U << 19;

uint64_t special_value(std::string_view name, const KernelLaunch& launch, const std::array<uint32_t, 3>& block, uint32_t thread,
                       uint32_t warp) {
  const auto axis = [&](const std::array<uint32_t, 3>& of) -> uint64_t {
    const char c = name.empty() ? 'x' : name.back();
    return of[c == 'y' ? 1 : c == 'z' ? 2 : 0];
  };
  if (name.starts_with("%tid.")) {
    return axis({thread % launch.block[0], thread / launch.block[0] % launch.block[1], thread / (launch.block[0] * launch.block[1])});
  }
  if (name.starts_with("%ntid.")) return axis(launch.block);
  if (name.starts_with("%ctaid.") || name.starts_with("%clusterid.")) return axis(block);
  if (name.starts_with("%nctaid.") || name.starts_with("%nclusterid.")) return axis(launch.grid);
  if (name.starts_with("%cluster_nctaid") || name.starts_with("%cluster_nctarank")) return 1;
  if (name == "%laneid") return thread % kLanes;
  if (name == "%warpid") return warp;
  if (name == "%nwarpid") return 64;
  if (name == "%nsmid") return 132;
  if (name == "%lanemask_eq") return 1ULL << (thread % kLanes);
  if (name == "%lanemask_lt") return (1ULL << (thread % kLanes)) - 1;
  if (name == "%lanemask_le") return (2ULL << (thread % kLanes)) - 1;
  if (name == "%lanemask_gt") return 0xffffffffULL & ~((2ULL << (thread % kLanes)) - 1);
  if (name == "%lanemask_ge") return 0xffffffffULL & ~((1ULL << (thread % kLanes)) - 1);
  if (name == "%dynamic_smem_size" || name == "%total_smem_size") return launch.dynamic_shared_bytes;
  if (name == "%smid") return block[0] % 132;
  return 0;
}

}  // namespace

WarpState::WarpState(const Kernel& kernel)
    : values_(kernel.relevant_registers),
      same_(kernel.relevant_registers),
      predicates_(kernel.registers),
      assumed_(kernel.registers),
      load_level_(kernel.registers),
      shared_level_(kernel.registers),
      ready_(kernel.registers),
      from_memory_(kernel.registers),
      guesses_(kernel.blocks.size()) {}

Warp::Warp(const PtxModule& module, const Kernel& kernel, const KernelLaunch& launch, const KnownValue& known, LaunchMemory* memory)
    : WarpState(kernel),
      met(kernel.messages.size() + 1),
      module_(module),
      kernel_(kernel),
      launch_(launch),
      known_(known),
      memory_(memory),
      footprints_(kernel.requests),
      shared_footprints_(kernel.requests) {}

void Warp::start(const std::array<uint32_t, 3>& block, uint32_t warp) {
  counts_ = {};
  std::fill(assumed_.begin(), assumed_.end(), 0);
  std::fill(predicates_.begin(), predicates_.end(), 0);
  std::fill(load_level_.begin(), load_level_.end(), 0);
  std::fill(shared_level_.begin(), shared_level_.end(), 0);
  std::fill(ready_.begin(), ready_.end(), 0);
  std::fill(from_memory_.begin(), from_memory_.end(), 0);
  std::fill(guesses_.begin(), guesses_.end(), 0);
  early_guesses_ = 0;
  written_.clear();
  for (LaneValues& v : values_) v.fill(0);
  std::fill(same_.begin(), same_.end(), 1);
  for (const auto& [r, value] : kernel_.immediates) values_[r].fill(value);
  for (const auto& [r, name] : kernel_.specials) {
    LaneValues& v = values_[r];
    for (uint32_t lane = 0; lane < kLanes; ++lane) v[lane] = special_value(name, launch_, block, warp * kLanes + lane, warp);
    same_[r] = std::all_of(v.begin(), v.end(), [&](uint64_t value) { return value == v[0]; });
  }
  for (auto& [header, loop] : loops_) loop.header = kNowhere;
  groups_.clear();
  open_group_ = {};
  bulk_.clear();
  is_first_ = warp == 0;
  if (is_first_) handed_.clear();
  reads_.clear();
  shared_loads_.assign(known_loads_ != nullptr ? kernel_.requests : 0, 0);
  load_now_ = shared_now_ = begin_ = latest_ = latest_load_ = now_ = issues_ = 0;
  in_flight_ = 0;
  carry_ = carry_assumed_ = 0;
  arrived_ = kNowhere;
  steps_ = 0;
  const uint32_t threads = launch_.block[0] * launch_.block[1] * launch_.block[2], first = warp * kLanes;
  const uint32_t here = threads > first ? std::min<uint32_t>(threads - first, kLanes) : 0;
  const auto end = static_cast<uint32_t>(kernel_.blocks.size());
  paths_.assign(1, {0, end, here == kLanes ? kAllLanes : (1U << here) - 1});
}

WarpCounts Warp::run(const std::array<uint32_t, 3>& block, uint32_t warp, const SharedLoads* loads) {
  known_loads_ = loads;
  begin(block, warp);
  count_to_barrier();
  return counted();
}

void Warp::begin(const std::array<uint32_t, 3>& block, uint32_t warp) {
  start(block, warp);
  waits_ = false;
}

void Warp::count_to_barrier() {
  while (!paths_.empty() && !counts_.cut_off && !waits_) advance();
}

WarpCounts Warp::counted() {
  close_log();
  counts_.steps = steps_;
  counts_.chain.cycles = begin_;
  counts_.chain.loads = load_now_;
  counts_.chain.shared_waits = shared_now_;
  counts_.in_flight = std::max(counts_.in_flight, in_flight_);
  return std::move(counts_);
}

// Whether the current path is at its end; then it is left.
bool Warp::leave_path() {
  const Path& path = paths_.back();
  const bool ends = path.lanes == 0 || path.block == path.until || path.block >= kernel_.blocks.size();
  if (ends) paths_.pop_back();
  return ends;
}

// Runs a block of instructions. Returns the loop whose next round begins after it; kNowhere: none.
uint32_t Warp::advance() {
  if (leave_path()) return kNowhere;
  const Path path = paths_.back();
  if (steps_ > kMostSteps) {
    counts_.cut_off = true;
    return kNowhere;
  }
  arrived_ = kNowhere;
  run_block(path.block, path.lanes);
  if (arrived_ != kNowhere) begin_round(arrived_);
  return arrived_;
}

void Warp::run_block(uint32_t number, LaneMask lanes) {
  const Block& block = kernel_.blocks[number];
  steps_ += block.instructions;
  for (size_t w = 0; w < kWorks; ++w) counts_.works[w] += block.works[w];
  counts_.instructions += block.instructions;
  counts_.flops += static_cast<double>(block.flops) * std::popcount(lanes);
  for (uint32_t n = block.first; n < block.end; ++n) step(kernel_.instructions[n], lanes);
  order(0);
  end_block(block, number);
  if (counts_.loads.size() > kMostLogged || counts_.stores.size() > kMostLogged) {
    for (auto* log : {&counts_.loads, &counts_.stores}) {
      *log = union_of(std::move(*log)).ranges;
      if (log->size() > kMostLogged / 2) counts_.cut_off = true, steps_ = kMostSteps + 1;
    }
  }
}

LaneMask Warp::guard_of(const Instruction& i, LaneMask lanes) {
  if (i.guard == kNoRegister) return lanes;
  const LaneMask value = predicates_[i.guard];
  return lanes & (i.guard_negated ? ~value : value);
}

void Warp::end_block(const Block& block, uint32_t number) {
  const Instruction& last = kernel_.instructions[block.end - 1];
  Path& path = paths_.back();
  const LaneMask taken = guard_of(last, path.lanes);
  if (last.op == Op::branch) return follow_branch(last, number, taken);
  if (last.op == Op::leave || last.op == Op::stop) {
    const LaneMask unknown = last.op == Op::stop && last.guard != kNoRegister ? assumed_[last.guard] : 0;
    for (Path& other : paths_) other.lanes &= ~taken | unknown;
    path.block = number + 1;
    return;
  }
  if (last.op != Op::branch_table || last.value >= kernel_.tables.size() || kernel_.tables[last.value].empty()) {
    path.block = number + 1;
    return;
  }
  // Each target with the lanes that go there.
  const auto& table = kernel_.tables[last.value];
  const LaneValues& index = values(source(last, 0));
  const Path from = path;
  path.block = block.after;
  if (from.lanes != taken) paths_.push_back({number + 1, block.after, from.lanes & ~taken});
  for (size_t t = 0; t < table.size(); ++t) {
    LaneMask lanes = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if ((taken >> lane & 1) != 0 && std::min<uint64_t>(index[lane] & 0xffffffff, table.size() - 1) == t) lanes |= 1U << lane;
    }
    if (lanes != 0) paths_.push_back({table[t], block.after, lanes});
  }
}

// A branch to where the kernel fails is not taken unless it is known to be: assertions hold.
void Warp::follow_branch(const Instruction& i, uint32_t number, LaneMask taken) {
  Path& path = paths_.back();
  const LaneMask unknown = i.guard != kNoRegister ? assumed_[i.guard] & path.lanes : 0;
  const bool there = kernel_.fails(i.value), here = kernel_.fails(number + 1);
  if (unknown != 0 && there != here) {
    taken = there ? taken & ~unknown : taken | unknown;
  } else if (unknown != 0) {
    counts_.assumed = counts_.assumed || !kernel_.blocks[number].has_short_ways;
    // What is not known may not hold a warp in a loop: it leaves a backward branch at once, any other path after some rounds.
    const uint32_t rounds = ++guesses_[number];
    early_guesses_ += kernel_.blocks[number].may_end_loop && rounds <= kGuesses + 1;
    if (i.value <= number && rounds > 1) taken = 0;
    if (i.value > number && rounds > kGuesses) taken = path.lanes & (rounds % 2 == 0 ? kAllLanes : ~taken);
  }
  if (taken == path.lanes) {
    path.block = i.value;
    if (i.value <= number) arrived_ = i.value;
  } else if (taken == 0) {
    path.block = number + 1;
  } else {
    const uint32_t after = kernel_.blocks[number].after;
    const LaneMask rest = path.lanes & ~taken;
    path.block = after;
    if (path.until == after) paths_.pop_back();
    paths_.push_back({i.value, after, taken});
    paths_.push_back({number + 1, after, rest});
  }
}

// The compiler orders the instructions between two such points so that they wait little: each is issued when its operands are there. What
// follows is issued when all before it were, and not before `cycle`.
void Warp::order(uint32_t cycle) {
  const uint32_t issued = begin_ + kIssueCycles * issues_;
  if (latest_load_ > issued) counts_.chain.load_cycles += latest_load_ - issued;
  begin_ = latest_ = latest_load_ = std::max({issued, latest_, cycle});
  issues_ = 0;
}

void Warp::wait_for(const Arrival& arrival) {
  load_now_ = std::max(load_now_, arrival.level);
  latest_load_ = std::max(latest_load_, arrival.ready);
  order(arrival.ready);
}

void Warp::wait_for_sources(const Instruction& i) {
  uint32_t load = load_now_, shared = shared_now_;
  now_ = begin_;
  const auto look = [&](Register r) {
    load = std::max(load, load_level_[r]);
    shared = std::max(shared, shared_level_[r]);
    if (ready_[r] > now_) {
      now_ = ready_[r];
      if (from_memory_[r] != 0) latest_load_ = std::max(latest_load_, now_);
    }
  };
  for (uint32_t w = i.first_wait; w < i.first_wait + i.waits; ++w) look(kernel_.waits[w]);
  if (load > load_now_) {
    counts_.in_flight = std::max(counts_.in_flight, in_flight_);
    in_flight_ = 0;
  }
  load_now_ = load;
  shared_now_ = shared;
  latest_ = std::max(latest_, now_);
}

void Warp::step(const Instruction& i, LaneMask lanes) {
  wait_for_sources(i);
  issues_ += i.work != Work::none;
  const uint32_t ready = now_ + i.latency;
  for (uint32_t r = 0; r < i.results; ++r) {
    const Register to = result(i, r);
    ready_[to] = ready;
    from_memory_[to] = 0;
  }
  if (i.guard != kNoRegister) {
    if (i.op != Op::branch && (i.work == Work::memory) && (assumed_[i.guard] & lanes) != 0) counts_.assumed = true;
    lanes = guard_of(i, lanes);
    counts_.flops += static_cast<double>(i.flops) * std::popcount(lanes);
  }
  if (i.value != 0 && i.op == Op::unknown_value && i.value < met.size() && lanes != 0) met[i.value] = 1;
  switch (i.op) {
    case Op::load:
    case Op::store:
    case Op::atomic:
    case Op::reduce:
    case Op::matrix_load:
    case Op::matrix_store:
      return memory(i, lanes);
    case Op::copy_async:
    case Op::copy_bulk:
      return copy(i, lanes);
    case Op::copy_async_commit:
      if (groups_.size() > 256) groups_.erase(groups_.begin(), groups_.begin() + 128);
      groups_.push_back(open_group_);
      return;
    case Op::copy_async_wait: {
      const size_t done = groups_.size() > i.value ? groups_.size() - i.value : 0;
      for (size_t g = 0; g < done; ++g) wait_for(groups_[g]);
      groups_.erase(groups_.begin(), groups_.begin() + static_cast<std::ptrdiff_t>(done));
      return;
    }
    case Op::barrier:
      counts_.barriers += lanes != 0;
      waits_ = memory_ != nullptr && lanes != 0;
      order(std::max(latest_, begin_ + kIssueCycles * issues_) + kBarrierCycles);
      return;
    case Op::fence:
      if (lanes != 0) wait_for(arrival());
      return;
    case Op::wait_true:
      counts_.barriers += lanes != 0;
      if (lanes != 0 && i.addresses > 0) {
        if (const auto copies = bulk_.find(first_address(i, 0, lanes)); copies != bulk_.end()) {
          wait_for(copies->second);
          bulk_.erase(copies);
        }
      }
      if (result(i, 0) < predicates_.size()) write_predicate(result(i, 0), lanes, kAllLanes, 0);
      return;
    case Op::expect_bytes: {
      const LaneValues& bytes = values(source(i, i.sources == 0 ? 0 : i.sources - 1U));
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        if ((lanes >> lane & 1) != 0) counts_.expected += static_cast<double>(bytes[lane] & 0xffffffff);
      }
      return unknown_results(i, lanes);
    }
    case Op::tensor:
    case Op::tensor_wgmma:
      if (lanes != 0) counts_.tensor[static_cast<size_t>(i.precision)] += i.tensor_flops;
      return unknown_results(i, lanes);
    case Op::tensor_descriptor:
      return tensor_from_descriptor(i, lanes);
    case Op::nothing:
    case Op::branch:
    case Op::branch_table:
    case Op::leave:
    case Op::stop:
      return;
    default:
      if (i.relevant) compute(i, lanes);
  }
  if (i.op == Op::shuffle || i.op == Op::reduce_lanes) shared_level_[result(i, 0)] = shared_now_ + 1;
}

// The instruction descriptor states the shape: N / 8 in bits 17 to 22, M / 16 in bits 24 to 28 (with scales: M / 128 in bits 27 and 28).
void Warp::tensor_from_descriptor(const Instruction& i, LaneMask lanes) {
  const Register shape = source(i, i.value);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const uint64_t bits = values(shape)[lane];
    const auto n = static_cast<double>((bits >> 17 & 0x3f) * 8);
    const auto m = static_cast<double>(i.wraps ? (bits >> 27 & 3) * 128 : (bits >> 24 & 0x1f) * 16);
    const Precision precision = i.precision == Precision::fp16 && (bits >> 7 & 7) == 1 ? Precision::bf16 : i.precision;
    counts_.tensor[static_cast<size_t>(precision)] += i.tensor_flops * n * m;
  }
}

void Warp::write(Register r, LaneMask lanes, const LaneValues& from, LaneMask assumed) {
  if (r == kNoRegister || r >= values_.size()) return;
  load_level_[r] = shared_level_[r] = 0;
  same_[r] = 0;
  LaneValues& to = values_[r];
  if (lanes == kAllLanes) {
    to = from;
  } else {
    for (uint32_t lane = 0; lane < kLanes; ++lane) to[lane] = (lanes >> lane & 1) != 0 ? from[lane] : to[lane];
  }
  assumed_[r] = (assumed_[r] & ~lanes) | (assumed & lanes);
}

void Warp::write_predicate(Register r, LaneMask lanes, LaneMask value, LaneMask assumed) {
  if (r == kNoRegister) return;
  predicates_[r] = (predicates_[r] & ~lanes) | (value & lanes);
  assumed_[r] = (assumed_[r] & ~lanes) | (assumed & lanes);
}

}  // namespace gpucast::ptx
