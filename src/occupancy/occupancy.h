// How full a launch makes a card: pure arithmetic on the launch, its kernel's resources and the card.
//
// The rules come from CUDA's occupancy calculator (cuda_occupancy.h of the toolkit) and from the CUDA C++ Programming Guide, "Compute
// Capabilities". Warps get registers and blocks get shared memory, both in multiples of a unit. A multiprocessor is divided into
// partitions, each with its own registers. docs/explanation/occupancy.md explains the rules.
#pragma once

#include <cstdint>
#include <span>

#include "src/occupancy/kernel_resources.h"

namespace gpucast {

// The figures that all cards of a compute capability share and that no query of the driver returns.
struct CapabilityRules {
  int major, minor;
  int most_blocks;            // of a multiprocessor
  int most_warps;             // of a multiprocessor
  int most_shared_bytes;      // of a multiprocessor
  int most_block_bytes;       // of shared memory, for a block that opts in
  int partitions;             // of a multiprocessor, each with an equal part of the registers
  int launch_partitions;      // a block's registers must fit as if it were divided into this many parts
  int register_unit;          // registers of a warp come in multiples of this
  int most_thread_registers;  // more: the block cannot be launched
  int shared_unit_bytes;      // shared memory of a block comes in multiples of this
  int reserved_shared_bytes;  // of each block, used by the driver
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

// The reason why no further block fits on a multiprocessor.
enum class OccupancyLimit : uint8_t { warps, blocks, registers, shared_memory, count_ };
const char* occupancy_limit_name(OccupancyLimit limit);  // as in JSON: "registers", ...

inline constexpr int kNoLimit = INT32_MAX;

struct BlocksPerMultiprocessor {
  int blocks = 0;  // 0: such a block cannot be launched
  int by_limit[static_cast<int>(OccupancyLimit::count_)] =
      {};  // blocks that each limit alone would allow; kNoLimit: the kernel does not use it
  // The lowest limit; of several equal ones, the first in the enum's order. The first ones cannot be changed by another kernel.
  OccupancyLimit limit = OccupancyLimit::warps;
  bool limited_by(OccupancyLimit which) const { return by_limit[static_cast<int>(which)] == blocks; }
};

// As cudaOccupancyMaxActiveBlocksPerMultiprocessor, for a kernel that may use all shared memory that a block can have.
// A kernel with 0 registers has no limit by registers.
BlocksPerMultiprocessor blocks_per_multiprocessor(const OccupancyCard& card, const KernelResources& kernel, int block_threads,
                                                  int64_t dynamic_shared_bytes);

struct Occupancy {
  BlocksPerMultiprocessor resident;
  int warps = 0;           // on a full multiprocessor
  double theoretical = 0;  // `warps` over the most that a multiprocessor can have
  // The grid runs in waves. A full wave has all the blocks that the card holds at once; the last wave may be partial, and `tail` is its
  // share of a full one.
  int64_t waves = 0;
  double tail = 0;  // above 0, at most 1
  // Active warps over the most possible, averaged over all multiprocessors and over the kernel's time, if all waves last equally long.
  double achieved = 0;
  double sm_active = 0;  // share of multiprocessors with a block, averaged in the same way
};
Occupancy occupancy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch);

// The figures that PyTorch's profiler (Kineto) writes for a kernel in addition to its sizes.
struct KinetoOccupancy {
  float blocks_per_sm = 0, warps_per_sm = 0;  // the grid's blocks over the number of multiprocessors, even if fewer fit at once
  int percent = 0;                            // "est. achieved occupancy %"
  // Kineto does not know that a kernel can opt in to more than 48 KiB of shared memory, and writes 0 % for such kernels.
  bool refused_shared_memory = false;
};
KinetoOccupancy kineto_occupancy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch);

// The effect of one change on a launch that does not fill the card.
struct OccupancyRemedy {
  enum class What : uint8_t { none, fewer_registers, less_shared_memory, other_block, more_blocks } what = What::none;
  int64_t goal = 0;     // of `what`: registers of a thread, shared bytes of a block, threads of a block, or blocks of the grid
  double achieved = 0;  // after the change
};
// The smallest change that lifts the limit: one more block fits on each multiprocessor, or the grid fills the card.
OccupancyRemedy occupancy_remedy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch);

}  // namespace gpucast
