// Runs one warp of a kernel: 32 lanes at once, integers exactly, and counts what it does.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/kernels/kernel_counts.h"
#include "src/kernels/memory_request.h"
#include "src/kernels/ptx_code.h"

namespace gpucast::ptx {

inline constexpr LaneMask kAllLanes = 0xffffffff;
// Steps of one warp. A longer one is cut off, and `limit` says so.
inline constexpr uint64_t kMostSteps = 400'000;

struct WarpCounts {
  double load_sectors = 0, store_sectors = 0, atomic_sectors = 0, async_load = 0, async_store = 0, expected = 0, wavefronts = 0, flops = 0,
         barriers = 0;
  std::array<double, kPrecisionCount> tensor = {};
  std::array<double, kWorks> works = {};
  double instructions = 0, in_flight = 0;
  WarpChain chain;
  std::vector<ByteRange> loads, stores;
  bool assumed = false, cut_off = false;
};

class Warp {
 public:
  Warp(const PtxModule& module, const Kernel& kernel, const KernelLaunch& launch, const KnownValue& known);
  WarpCounts run(const std::array<uint32_t, 3>& block, uint32_t warp);
  std::vector<uint8_t> met;   // messages of instructions that were run, by their number
  bool reads_values = false;  // the host knew a number that was loaded from the card

 private:
  struct Arrival {  // of asynchronous copies
    uint32_t level = 0, ready = 0;
  };
  struct Path {
    uint32_t block, until;
    LaneMask lanes;
  };
  void start(const std::array<uint32_t, 3>& block, uint32_t warp);
  void run_block(uint32_t block, LaneMask lanes);
  void end_block(const Block& block, uint32_t number);
  void follow_branch(const Instruction& i, uint32_t number, LaneMask taken);
  void step(const Instruction& i, LaneMask lanes);
  void wait_for_sources(const Instruction& i);
  void wait_for(const Arrival& arrival);
  Arrival arrival() const { return {load_now_ + 1, now_ + kLoadCycles}; }
  void order(uint32_t cycle);
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
  void load(const Instruction& i, LaneMask lanes, const LaneValues& addresses);
  void copy(const Instruction& i, LaneMask lanes);
  void tensor_from_descriptor(const Instruction& i, LaneMask lanes);
  void unknown_results(const Instruction& i, LaneMask lanes);
  bool addresses_of(const Instruction& i, uint32_t number, LaneMask lanes, LaneValues* out);
  bool has_written(uint64_t address, uint32_t bytes) const;
  uint64_t read_parameter(uint64_t offset, uint32_t bytes, bool* is_known) const;

  Register result(const Instruction& i, uint32_t n) const { return n < i.results ? kernel_.operands[i.first_operand + n] : kNoRegister; }
  Register source(const Instruction& i, uint32_t n) const {
    return n < i.sources ? kernel_.operands[i.first_operand + i.results + n] : kNoRegister;
  }
  const LaneValues& values(Register r) const { return values_[r < values_.size() ? r : 0]; }
  bool is_same(Register r) const { return r < same_.size() && same_[r] != 0; }
  void write(Register r, LaneMask lanes, const LaneValues& values, LaneMask assumed);
  void write_predicate(Register r, LaneMask lanes, LaneMask value, LaneMask assumed);
  LaneMask guard_of(const Instruction& i, LaneMask lanes);

  const PtxModule& module_;
  const Kernel& kernel_;
  const KernelLaunch& launch_;
  const KnownValue& known_;
  std::vector<LaneValues> values_;
  std::vector<uint8_t> same_;                   // by register with a value: it is the same in all lanes
  std::vector<LaneMask> predicates_, assumed_;  // by register
  std::vector<uint32_t> load_level_, shared_level_;
  std::vector<uint32_t> ready_;                            // by register: the cycle at which its value is there
  std::vector<uint8_t> from_memory_;                       // by register: the value comes from device memory
  std::vector<const Instruction*> open_;                   // instructions with bytes that are not logged yet
  std::vector<ByteRange> written_;                         // by store: from the first to the last byte
  std::vector<Footprint> footprints_, shared_footprints_;  // of the last request of each instruction
  std::vector<uint32_t> guesses_;                          // by block: how often an assumed value ended it
  std::vector<Arrival> groups_;                            // of committed asynchronous copies
  std::vector<Path> paths_;
  Arrival open_group_, bulk_;  // of copies before their commit; of copies that signal a barrier in shared memory
  double in_flight_ = 0;
  LaneMask carry_ = 0, carry_assumed_ = 0;
  uint64_t steps_ = 0;
  uint32_t load_now_ = 0, shared_now_ = 0;
  uint32_t begin_ = 0, latest_ = 0;  // cycles: the first and the last issue of this block of instructions
  uint32_t latest_load_ = 0;         // of those issues, the last one that waited for device memory
  uint32_t now_ = 0;                 // the issue of this instruction
  uint32_t issues_ = 0;              // since begin_
  WarpCounts counts_;
};

}  // namespace gpucast::ptx
