#include "src/occupancy/occupancy_card.h"

#include <fmt/format.h>

#include "gpucast/error.h"
#include "gpucast/gpu.h"

namespace gpucast {

OccupancyCard occupancy_card(const Gpu& gpu) {
  const CapabilityRules* const rules = find_capability_rules(gpu.compute_major, gpu.compute_minor);
  if (rules == nullptr)
    throw Error(fmt::format("no occupancy rules for compute capability {}.{}", gpu.compute_major, gpu.compute_minor), gpu.name,
                "a card of 6.0 to 12.1 can be asked: `gpucast gpus` lists them");
  OccupancyCard out;
  out.rules = rules;
  out.multiprocessors = gpu.multiprocessors;
  out.most_threads = gpu.max_threads_per_multiprocessor;
  out.most_blocks = gpu.max_blocks_per_multiprocessor;
  out.registers = gpu.registers_per_multiprocessor;
  out.shared_bytes = gpu.shared_memory_per_multiprocessor_bytes;
  out.block_shared_bytes = gpu.shared_memory_per_block_optin_bytes;
  return out;
}

}  // namespace gpucast
