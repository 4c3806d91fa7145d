// How full a launch makes a card: pure arithmetic on the launch, what its kernel takes of a multiprocessor, and the card.
//
// The rules are those of CUDA's occupancy calculator (cuda_occupancy.h of the toolkit) and of the CUDA C++ Programming Guide, "Compute
// Capabilities": registers are handed out by warp, shared memory by block, both in units; a multiprocessor is cut into partitions, each
// with its own registers. docs/explanation/occupancy.md has them in words.
#pragma once

#include <cstdint>
#include <span>

#include "src/occupancy/kernel_resources.h"

namespace gpucast {

// What is the same for all cards of a compute capability, and no query tells.
struct CapabilityRules {
  int major, minor;
  int most_blocks;            // of a multiprocessor
  int most_warps;             // of a multiprocessor
  int most_shared_bytes;      // of a multiprocessor
  int most_block_bytes;       // of shared memory, for a block that opts in
  int partitions;             // of a multiprocessor, each with its share of the registers
  int launch_partitions;      // a block's registers must fit as if it were cut into so many parts
  int register_unit;          // registers of a warp come in multiples of this
  int most_thread_registers;  // more: the block cannot be launched
  int shared_unit_bytes;      // shared memory of a block comes in multiples of this
  int reserved_shared_bytes;  // of a block, taken by the driver
};
inline constexpr int kWarpThreads = 32, kMostBlockThreads = 1024, kMultiprocessorRegisters = 65536;

std::span<const CapabilityRules> capability_rules();                 // by capability
const CapabilityRules* find_capability_rules(int major, int minor);  // nullptr: there are none

// A card, as far as occupancy depends on it.
struct OccupancyCard {
  const CapabilityRules* rules = nullptr;
  int multiprocessors = 0;
  int most_threads = 0;  // of a multiprocessor
  int most_blocks = 0;
  int registers = 0;
  int shared_bytes = 0;        // of a multiprocessor
  int block_shared_bytes = 0;  // the most that a block can opt in to
};
OccupancyCard card_of_capability(const CapabilityRules& rules, int multiprocessors);

struct Launch {
  int64_t blocks = 1;  // of the whole grid
  int block_threads = 1;
  int64_t dynamic_shared_bytes = 0;
};

// What keeps another block off a multiprocessor.
enum class OccupancyLimit : uint8_t { warps, blocks, registers, shared_memory, count_ };
const char* occupancy_limit_name(OccupancyLimit limit);  // as in JSON: "registers", ...

inline constexpr int kNoLimit = INT32_MAX;

struct BlocksPerMultiprocessor {
  int blocks = 0;                                               // 0: such a block cannot be launched
  int by_limit[static_cast<int>(OccupancyLimit::count_)] = {};  // what each alone would allow; kNoLimit: it takes none
  // The lowest; of several the first in the enum's order, which is the one that no other kernel would lift.
  OccupancyLimit limit = OccupancyLimit::warps;
  bool limited_by(OccupancyLimit which) const { return by_limit[static_cast<int>(which)] == blocks; }
};

// As cudaOccupancyMaxActiveBlocksPerMultiprocessor for a kernel that may use all shared memory that a block can have.
// `registers` of 0 take none.
BlocksPerMultiprocessor blocks_per_multiprocessor(const OccupancyCard& card, const KernelResources& kernel, int block_threads,
                                                  int64_t dynamic_shared_bytes);

struct Occupancy {
  BlocksPerMultiprocessor resident;
  int warps = 0;           // of a multiprocessor that is full
  double theoretical = 0;  // those over the most that it can have
  // The grid runs in waves of as many blocks as the card holds at once. The last one may be partial: `tail` is its share of a full one.
  int64_t waves = 0;
  double tail = 0;  // above 0, at most 1
  // Active warps over the most, averaged over all multiprocessors and over the kernel's time, all waves taking equally long.
  double achieved = 0;
  double sm_active = 0;  // share of multiprocessors with a block, averaged likewise
};
Occupancy occupancy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch);

// What PyTorch's profiler (Kineto) writes of a kernel beside its sizes.
struct KinetoOccupancy {
  float blocks_per_sm = 0, warps_per_sm = 0;  // the grid's blocks over all multiprocessors, however many fit at once
  int percent = 0;                            // "est. achieved occupancy %"
  // It knows of no kernel that opts in to more shared memory than 48 KiB, and writes 0 % for it.
  bool refused_shared_memory = false;
};
KinetoOccupancy kineto_occupancy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch);

// What one change would do for a launch that does not fill the card.
struct OccupancyRemedy {
  enum class What : uint8_t { none, fewer_registers, less_shared_memory, other_block, more_blocks } what = What::none;
  int64_t goal = 0;     // registers of a thread, bytes of shared memory of a block, threads of a block, blocks of the grid
  double achieved = 0;  // with that
};
// The nearest change that lifts what limits it: one more block on each multiprocessor, or a grid that fills the card.
OccupancyRemedy occupancy_remedy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch);

}  // namespace gpucast
