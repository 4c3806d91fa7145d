// Runs one warp of a kernel: 32 lanes at once, integers exactly, and counts what it does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/kernels/handed_numbers.h"
#include "src/kernels/kernel_counts.h"
#include "src/kernels/memory_request.h"
#include "src/kernels/ptx_code.h"

namespace gpucast::ptx {

inline constexpr uint32_t kNowhere = 0xffffffff;
inline constexpr LaneMask kAllLanes = 0xffffffff;
// Steps of one warp. A longer one is cut off, and `limit` says so.
inline constexpr uint64_t kMostSteps = 16'000'000;

struct WarpCounts {
  double load_sectors = 0, store_sectors = 0, atomic_sectors = 0, gathered_sectors = 0, atomic_passes = 0, async_load = 0, async_store = 0,
         expected = 0, wavefronts = 0, flops = 0, barriers = 0;
  std::array<double, kPrecisionCount> tensor = {};
  std::array<double, kWorks> works = {};
  double instructions = 0, in_flight = 0;
  WarpChain chain;
  std::vector<ByteRange> loads, stores, atomics;  // atomics: from the first to the last byte of each request
  bool assumed = false, cut_off = false;
  uint64_t steps = 0;  // instructions that were run; `instructions` counts skipped rounds of loops, too
};

// What a load from shared memory found.
struct SharedLoad {
  LaneMask lanes = 0;
  std::vector<LaneValues> values;  // by result
  std::vector<LaneMask> assumed;
};
// What a warp's loads from shared memory find, in a kernel whose warps share numbers: by request, in the order of time.
using SharedLoads = std::vector<std::vector<SharedLoad>>;

// What a warp has computed so far.
struct WarpState {
  explicit WarpState(const Kernel& kernel);

  struct Arrival {  // of asynchronous copies
    uint32_t level = 0, ready = 0;
  };
  struct Path {
    uint32_t block, until;
    LaneMask lanes;
  };

  std::vector<LaneValues> values_;
  std::vector<uint8_t> same_;                   // by register with a value: it is the same in all lanes
  std::vector<LaneMask> predicates_, assumed_;  // by register
  std::vector<uint32_t> load_level_, shared_level_;
  std::vector<uint32_t> ready_;       // by register: the cycle at which its value is there
  std::vector<uint8_t> from_memory_;  // by register: the value comes from device memory
  std::vector<uint32_t> guesses_;     // by block: how often an assumed value ended it
  uint32_t early_guesses_ = 0;        // those that may end a loop, and have not gone the other way yet
  RoughByteSet written_;              // by stores and atomics
  std::vector<Arrival> groups_;       // of committed asynchronous copies
  std::vector<Path> paths_;
  Arrival open_group_;                  // of copies before their commit
  std::map<uint64_t, Arrival> bulk_;    // of copies that signal a barrier in shared memory, by its address
  HandedNumbers handed_;                // by the first warp of this block
  std::map<uint64_t, uint32_t> reads_;  // how often this warp has read each place of them
  std::vector<uint32_t> shared_loads_;  // by request: how many of its SharedLoads are over; none where none are known
  double in_flight_ = 0;
  LaneMask carry_ = 0, carry_assumed_ = 0;
  uint64_t steps_ = 0;
  uint32_t load_now_ = 0, shared_now_ = 0;
  uint32_t begin_ = 0, latest_ = 0;  // cycles: the first and the last issue of this block of instructions
  uint32_t latest_load_ = 0;         // of those issues, the last one that waited for device memory
  uint32_t now_ = 0;                 // the issue of this instruction
  uint32_t issues_ = 0;              // since begin_
  uint32_t arrived_ = kNowhere;      // the loop whose next round begins
  WarpCounts counts_;
};

// Counts that rounds of a loop add up: these, then matrix FLOPs by precision, then instructions by kind.
inline constexpr std::array kSums = {
    &WarpCounts::load_sectors,  &WarpCounts::store_sectors, &WarpCounts::atomic_sectors, &WarpCounts::gathered_sectors,
    &WarpCounts::atomic_passes, &WarpCounts::async_load,    &WarpCounts::async_store,    &WarpCounts::expected,
    &WarpCounts::wavefronts,    &WarpCounts::flops,         &WarpCounts::barriers,       &WarpCounts::instructions};
using Tally = std::array<double, kSums.size() + kPrecisionCount + kWorks>;

// A loop whose rounds may be alike: a few are run, and the others follow from them (warp_loops.cc).
struct Loop {
  struct Mark {  // at the begin of a round
    std::vector<LaneValues> values;
    std::vector<LaneMask> predicates, assumed;
    std::vector<uint32_t> shared_loads;
    uint32_t early_guesses = 0;
    Tally tally;
  };
  uint32_t header = kNowhere;  // the number of its first block
  LaneMask lanes = 0;
  size_t depth = 0;                  // of the warp's paths
  uint32_t rounds = 0, look_at = 0;  // rounds so far; the first one that is compared
  uint32_t failures = 0;             // how often rounds were compared in vain
  size_t marked = 0;
  std::vector<Mark> marks;  // the first `marked` ones
  uint32_t least_period = 1;
  uint32_t period = 0;                 // rounds after which the same happens again
  std::vector<LaneValues> step;        // that registers move on in a period
  std::vector<Register> moving;        // those that do
  std::vector<uint32_t> shared_loads;  // of a period
  uint64_t periods = 0;                // that were alike the last time
  bool is_skipping = false;
};

// What setp.eq and setp.ne compared: they may hold once, between two rounds in which they do not.
struct Equality {
  uint32_t bits = 0;
  LaneMask lanes = 0;
  LaneValues difference = {};
};

// What one period does.
struct Period {
  uint64_t steps = 0;
  Tally tally = {};
  std::vector<LaneMask> predicates;
  std::vector<ByteRange> loads, stores;
  std::vector<Equality> equalities;
  double cycles = 0, load_cycles = 0;
  uint32_t loads_in_chain = 0, shared_in_chain = 0;
};

class LaunchMemory;

class Warp : private WarpState {
 public:
  // `memory`: for a warp whose values in memory are followed.
  Warp(const PtxModule& module, const Kernel& kernel, const KernelLaunch& launch, const KnownValue& known, LaunchMemory* memory = nullptr);
  // `loads`: if they are known.
  WarpCounts run(const std::array<uint32_t, 3>& block, uint32_t warp, const SharedLoads* loads = nullptr);

  // The same in parts, from a barrier to the next, for warps whose values in shared memory are followed while they count.
  void begin(const std::array<uint32_t, 3>& block, uint32_t warp);
  void count_to_barrier();
  WarpCounts counted();

  // With values in memory, nothing is counted: from one of its requests for memory to the next. False: it has ended.
  bool take_turn();
  // Runs only what decides the numbers that warps share, to the next barrier or until `most_steps` are done in all.
  void share_to_barrier(uint64_t most_steps, SharedLoads* loads);
  bool has_ended() const { return paths_.empty(); }
  bool waits() const { return waits_; }  // at a barrier
  void pass_barrier() { waits_ = false; }
  uint64_t steps() const { return steps_; }

  std::vector<uint8_t> met;   // messages of instructions that were run, by their number
  bool reads_values = false;  // the host knew a number that was loaded from the card

 private:
  void start(const std::array<uint32_t, 3>& block, uint32_t warp);
  uint32_t advance();
  bool leave_path();
  void run_block(uint32_t block, LaneMask lanes);
  void end_block(const Block& block, uint32_t number);
  void follow_branch(const Instruction& i, uint32_t number, LaneMask taken);
  void step(const Instruction& i, LaneMask lanes);
  void wait_for_sources(const Instruction& i);
  void wait_for(const Arrival& arrival);
  Arrival arrival() const { return {load_now_ + 1, now_ + kLoadCycles}; }
  void order(uint32_t cycle);
  void begin_round(uint32_t header);
  bool run_period(const Loop& loop, uint64_t most_steps, Period* out);
  bool skip_periods(Loop* loop);
  uint64_t periods_alike(Loop* loop, const Period& last, const std::vector<int64_t>& strides, uint64_t most);
  void move_on(const Loop& loop, uint64_t periods);
  Tally tally() const;
  void compute(const Instruction& i, LaneMask lanes);
  void compute_integer(const Instruction& i, LaneMask lanes);
  template <class F>
  void set_lanes(Register to, LaneMask lanes, bool same, LaneMask assumed, F f);
  void add_with_carry(const Instruction& i, LaneMask lanes, LaneMask assumed);
  void unpack(const Instruction& i, LaneMask lanes, LaneMask assumed);
  void compute_predicate(const Instruction& i, LaneMask lanes);
  void compute_comparison(const Instruction& i, LaneMask lanes);
  void compute_lanes(const Instruction& i, LaneMask lanes);
  void shuffle(const Instruction& i, LaneMask lanes);
  void memory(const Instruction& i, LaneMask lanes);
  int touch(const Instruction& i, const LaneValues& addresses, LaneMask lanes);
  void close_log();
  void drop_open();
  void load(const Instruction& i, LaneMask lanes, const LaneValues& addresses);
  void copy(const Instruction& i, LaneMask lanes);
  uint64_t first_address(const Instruction& i, uint32_t number, LaneMask lanes);
  void tensor_from_descriptor(const Instruction& i, LaneMask lanes);
  void unknown_results(const Instruction& i, LaneMask lanes);
  void step_values(const Instruction& i, LaneMask lanes);
  uint64_t place_of(const Instruction& i, uint32_t number, uint32_t lane, bool* shared);
  void load_values(const Instruction& i, LaneMask lanes);
  std::optional<uint64_t> known_value(Register r, uint32_t lane) const;
  void write_memory(bool shared, uint64_t at, uint32_t bytes, std::optional<uint64_t> value);
  void store_values(const Instruction& i, LaneMask lanes, LaneMask maybe);
  void combine_values(const Instruction& i, LaneMask lanes, LaneMask maybe);
  bool follow_shared(const Instruction& i, LaneMask lanes);
  void load_matrices(const Instruction& i, LaneMask lanes);
  void hand_numbers(const Instruction& i, LaneMask lanes, const LaneValues& addresses);
  bool take_handed(const Instruction& i, LaneMask lanes, const LaneValues& addresses);
  bool take_shared(const Instruction& i, LaneMask lanes);
  void copy_values(const Instruction& i, LaneMask lanes, LaneMask maybe);
  bool addresses_of(const Instruction& i, uint32_t number, LaneMask lanes, LaneValues* out);
  uint64_t read_parameter(uint64_t offset, uint32_t bytes, bool* is_known) const;

  Register result(const Instruction& i, uint32_t n) const { return n < i.results ? kernel_.operands[i.first_operand + n] : kNoRegister; }
  Register source(const Instruction& i, uint32_t n) const {
    return n < i.sources ? kernel_.operands[i.first_operand + i.results + n] : kNoRegister;
  }
  const LaneValues& values(Register r) const { return values_[r < values_.size() ? r : 0]; }
  bool has_one_value(Register r) const { return r < same_.size() && same_[r] != 0; }
  void write(Register r, LaneMask lanes, const LaneValues& values, LaneMask assumed);
  void write_predicate(Register r, LaneMask lanes, LaneMask value, LaneMask assumed);
  LaneMask guard_of(const Instruction& i, LaneMask lanes);

  const PtxModule& module_;
  const Kernel& kernel_;
  const KernelLaunch& launch_;
  const KnownValue& known_;
  LaunchMemory* const memory_;
  const SharedLoads* known_loads_ = nullptr;
  bool waits_ = false, is_first_ = false;
  std::vector<const Instruction*> open_;                   // instructions with bytes that are not logged yet
  std::vector<Footprint> footprints_, shared_footprints_;  // of the last request of each instruction
  std::map<uint32_t, Loop> loops_;
  std::vector<Equality>* equalities_ = nullptr;  // where they are noted
};

}  // namespace gpucast::ptx
