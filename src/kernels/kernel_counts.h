// What one launch of a kernel does, counted from its code. Pure functions of the code, the launch and the known values on the card.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/time/operation.h"

namespace gpucast {

struct KernelLaunch {
  std::array<uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  std::string parameters;  // the bytes of the entry's parameters, in its own layout
};

// What the assembler made of a kernel.
struct MachineCode {
  int registers = 0;                // of a thread; 0: not known
  int64_t static_shared_bytes = 0;  // of a block
  int64_t local_bytes = 0;          // of a thread: registers that did not fit
};

// Counts are for the whole launch: some warps of some blocks are run, and stand for the others.
struct KernelCounts : LaunchCounts {
  double warps = 0;
  // Global memory, in sectors of 32 bytes that a warp's request touches. What L1 and L2 would answer is counted too.
  double load_sectors = 0, store_sectors = 0;
  double async_load_bytes = 0, async_store_bytes = 0;    // cp.async, bulk copies and TMA; not in the sectors
  double unique_load_bytes = 0, unique_store_bytes = 0;  // each byte of device memory once
  double block_load_bytes = 0, block_store_bytes = 0;    // each byte once for each block, summed over the blocks
  double block_atomic_bytes = 0, atomic_bytes = 0;       // the same of atomics, for each block and for the launch
  double block_touched_bytes = 0, touched_bytes = 0;     // of loads and stores: whole sectors, each once for each block, and for the launch
  double flops = 0;                                      // arithmetic outside matrix instructions, of active threads; fma is 2
  double barriers = 0;
  double memory_repeats = 0;   // how often a warp runs each of its instructions for memory, on average
  double loads_in_flight = 0;  // bytes that a warp requests before it first uses one of them

  bool assumed_values = false;              // a loaded integer that was not known decided an address or a branch
  std::vector<std::string> not_understood;  // instructions, each once; the counts lack their effect
  std::string limit;                        // why the count is not complete: a limit that was reached; "": complete
};

// What the host knows of the card's memory: an integer of `bytes` bytes at `address`.
using KnownValue = std::function<std::optional<uint64_t>(uint64_t address, int bytes)>;

// The integer of `size` bytes, at most 8, at `offset`. Unset: it is not wholly in `bytes`.
std::optional<uint64_t> integer_in(std::string_view bytes, uint64_t offset, size_t size);

// Bytes that a launch left in the card's memory.
struct StoredNumbers {
  uint64_t address = 0;
  std::string bytes;  // zeros where they are not known
  bool known = true;
};

class PtxModule;
// Throws Error if the text is no PTX. The text need not outlive the module.
std::shared_ptr<const PtxModule> parse_ptx(std::string_view text);                      // for count_kernel
std::shared_ptr<const PtxModule> parse_ptx_with_stored_numbers(std::string_view text);  // for find_stored_numbers (stored_numbers.h)

// The entry `name` must be in the module; otherwise `limit` says so. Never throws for bad code, and ends after a bounded number of steps.
KernelCounts count_kernel(const PtxModule& module, std::string_view name, const KernelLaunch& launch, const KnownValue& known = {});

}  // namespace gpucast
