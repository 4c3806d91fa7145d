// Occupancy rules by compute capability.
//
// Sources: CUDA C++ Programming Guide 13.0, "Compute Capabilities", table "Technical Specifications per Compute Capability" (blocks and
// warps of a multiprocessor, shared memory of a multiprocessor and of a block, 255 registers a thread at most), and the toolkit's
// cuda_occupancy.h of CUDA 13.0 (units of allocation, partitions, 1 KiB reserved for the driver from 8.0 on; the guide has that in the
// chapters on 8.x and 9.0). 6.0 has two partitions, but refuses blocks whose registers would not fit four.
// Since 7.0, cuda_occupancy.h allows a thread 256 registers; no compiler uses more than 255.

#include <algorithm>
#include <array>

#include "src/occupancy/occupancy.h"

namespace gpucast {
namespace {

constexpr int kKiB = 1024;

// clang-format off
constexpr std::array kRules = {
    // capability  blocks warps  shared memory: SM, block  partitions  unit  thread's  unit  reserved
    CapabilityRules{ 6, 0,  32,  64,   64 * kKiB,  48 * kKiB,   2, 4,   256,  255,   256,     0},
    CapabilityRules{ 6, 1,  32,  64,   96 * kKiB,  48 * kKiB,   4, 4,   256,  255,   256,     0},
    CapabilityRules{ 7, 0,  32,  64,   96 * kKiB,  96 * kKiB,   4, 4,   256,  256,   256,     0},
    CapabilityRules{ 7, 2,  32,  64,   96 * kKiB,  96 * kKiB,   4, 4,   256,  256,   256,     0},
    CapabilityRules{ 7, 5,  16,  32,   64 * kKiB,  64 * kKiB,   4, 4,   256,  256,   256,     0},
    CapabilityRules{ 8, 0,  32,  64,  164 * kKiB, 163 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{ 8, 6,  16,  48,  100 * kKiB,  99 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{ 8, 7,  16,  48,  164 * kKiB, 163 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{ 8, 9,  24,  48,  100 * kKiB,  99 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{ 9, 0,  32,  64,  228 * kKiB, 227 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{10, 0,  32,  64,  228 * kKiB, 227 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{10, 3,  32,  64,  228 * kKiB, 227 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{11, 0,  24,  48,  228 * kKiB, 227 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{12, 0,  24,  48,  100 * kKiB,  99 * kKiB,   4, 4,   256,  256,   128,  kKiB},
    CapabilityRules{12, 1,  24,  48,  100 * kKiB,  99 * kKiB,   4, 4,   256,  256,   128,  kKiB},
};
// clang-format on

}  // namespace

std::span<const CapabilityRules> capability_rules() { return kRules; }

const CapabilityRules* find_capability_rules(int major, int minor) {
  const auto* const found = std::find_if(kRules.begin(), kRules.end(),
                                         [&](const CapabilityRules& rules) { return rules.major == major && rules.minor == minor; });
  return found == kRules.end() ? nullptr : found;
}

OccupancyCard card_of_capability(const CapabilityRules& rules, int multiprocessors) {
  return {&rules,
          multiprocessors,
          rules.most_warps * kWarpThreads,
          rules.most_blocks,
          kMultiprocessorRegisters,
          rules.most_shared_bytes,
          rules.most_block_bytes};
}

}  // namespace gpucast
