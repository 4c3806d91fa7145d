#include "src/occupancy/occupancy.h"

#include <algorithm>
#include <cmath>

namespace gpucast {
namespace {

template <typename T>
constexpr T divided_up(T value, T by) {
  return (value + by - 1) / by;
}
template <typename T>
constexpr T rounded_up(T value, T unit) {
  return divided_up(value, unit) * unit;
}

int most_warps(const OccupancyCard& card) { return card.most_threads / kWarpThreads; }

int by_registers(const OccupancyCard& card, const KernelResources& kernel, int warps) {
  const CapabilityRules& rules = *card.rules;
  if (kernel.registers <= 0) return kNoLimit;
  if (kernel.registers > rules.most_thread_registers) return 0;
  const int of_warp = rounded_up(kernel.registers * kWarpThreads, rules.register_unit);
  if (of_warp * rounded_up(warps, rules.launch_partitions) > card.registers) return 0;
  return card.registers / rules.partitions / of_warp * rules.partitions / warps;
}

// The shared memory of a block; -1: more than a block can have.
int64_t shared_bytes(const OccupancyCard& card, const KernelResources& kernel, int64_t dynamic_shared_bytes, int block_limit_bytes) {
  const CapabilityRules& rules = *card.rules;
  if (dynamic_shared_bytes < 0 || dynamic_shared_bytes > block_limit_bytes) return -1;
  const int64_t taken = rounded_up<int64_t>(int64_t{kernel.static_shared_bytes} + dynamic_shared_bytes + rules.reserved_shared_bytes,
                                            rules.shared_unit_bytes);
  return taken <= int64_t{block_limit_bytes} + rules.reserved_shared_bytes ? taken : -1;
}

}  // namespace

const char* occupancy_limit_name(OccupancyLimit limit) {
  switch (limit) {
    case OccupancyLimit::warps:
      return "warps";
    case OccupancyLimit::blocks:
      return "blocks";
    case OccupancyLimit::registers:
      return "registers";
    case OccupancyLimit::shared_memory:
      return "shared_memory";
    case OccupancyLimit::count_:
      break;
  }
  return "";
}

BlocksPerMultiprocessor blocks_per_multiprocessor(const OccupancyCard& card, const KernelResources& kernel, int block_threads,
                                                  int64_t dynamic_shared_bytes) {
  BlocksPerMultiprocessor out;
  if (block_threads <= 0 || block_threads > kMostBlockThreads) return out;
  const int warps = divided_up(block_threads, kWarpThreads);
  const auto set = [&](OccupancyLimit limit, int blocks) { out.by_limit[static_cast<int>(limit)] = blocks; };
  set(OccupancyLimit::warps, most_warps(card) / warps);
  set(OccupancyLimit::blocks, card.most_blocks);
  set(OccupancyLimit::registers, by_registers(card, kernel, warps));
  const int64_t shared = shared_bytes(card, kernel, dynamic_shared_bytes, card.block_shared_bytes);
  set(OccupancyLimit::shared_memory, shared < 0 ? 0 : shared == 0 ? kNoLimit : static_cast<int>(card.shared_bytes / shared));
  const int* const lowest = std::min_element(std::begin(out.by_limit), std::end(out.by_limit));
  out.blocks = *lowest;
  out.limit = static_cast<OccupancyLimit>(lowest - std::begin(out.by_limit));
  return out;
}

Occupancy occupancy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch) {
  Occupancy out;
  out.resident = blocks_per_multiprocessor(card, kernel, launch.block_threads, launch.dynamic_shared_bytes);
  if (out.resident.blocks <= 0 || launch.blocks <= 0) return out;
  const int warps = divided_up(launch.block_threads, kWarpThreads), most = most_warps(card);
  out.warps = out.resident.blocks * warps;
  out.theoretical = static_cast<double>(out.warps) / most;
  const int64_t wave = int64_t{out.resident.blocks} * card.multiprocessors;
  out.waves = divided_up(launch.blocks, wave);
  const int64_t last = launch.blocks - (out.waves - 1) * wave;
  out.tail = static_cast<double>(last) / static_cast<double>(wave);
  const auto waves = static_cast<double>(out.waves);
  out.achieved = (waves - 1 + out.tail) / waves * out.theoretical;
  // Blocks go to the emptiest multiprocessor first.
  out.sm_active = (waves - 1 + static_cast<double>(std::min<int64_t>(last, card.multiprocessors)) / card.multiprocessors) / waves;
  return out;
}

KinetoOccupancy kineto_occupancy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch) {
  constexpr int kWithoutOptIn = 48 << 10;
  KinetoOccupancy out;
  // In single precision, as in Kineto, because the last digit and the rounding at .5 depend on it.
  out.blocks_per_sm = static_cast<float>(launch.blocks) / static_cast<float>(card.multiprocessors);
  out.warps_per_sm = out.blocks_per_sm * static_cast<float>(launch.block_threads) / static_cast<float>(kWarpThreads);
  OccupancyCard without = card;
  without.block_shared_bytes = std::min(card.block_shared_bytes, kWithoutOptIn);
  const int blocks = blocks_per_multiprocessor(without, kernel, launch.block_threads, launch.dynamic_shared_bytes).blocks;
  out.refused_shared_memory = shared_bytes(without, kernel, launch.dynamic_shared_bytes, without.block_shared_bytes) < 0;
  const float resident = std::min(out.blocks_per_sm, static_cast<float>(blocks));
  const float share = resident * static_cast<float>(launch.block_threads) / static_cast<float>(card.most_threads);
  out.percent = static_cast<int>(std::lround(static_cast<double>(share) * 100.0));
  return out;
}

OccupancyRemedy occupancy_remedy(const OccupancyCard& card, const KernelResources& kernel, const Launch& launch) {
  using What = OccupancyRemedy::What;
  const Occupancy now = occupancy(card, kernel, launch);
  if (now.resident.blocks <= 0) return {};
  const int64_t wave = int64_t{now.resident.blocks} * card.multiprocessors;
  // A grid that does not fill the card does not need more room for blocks.
  if (launch.blocks < wave) {
    const double full = now.theoretical;
    return {What::more_blocks, wave, full};
  }
  const auto better = [&](const KernelResources& other, const Launch& with) {
    return blocks_per_multiprocessor(card, other, with.block_threads, with.dynamic_shared_bytes).blocks > now.resident.blocks;
  };
  switch (now.resident.limit) {
    case OccupancyLimit::registers: {
      KernelResources other = kernel;
      for (--other.registers; other.registers > 0; --other.registers)
        if (better(other, launch)) return {What::fewer_registers, other.registers, occupancy(card, other, launch).achieved};
      return {};
    }
    case OccupancyLimit::shared_memory: {
      const CapabilityRules& rules = *card.rules;
      const int64_t room = int64_t{card.shared_bytes} / (now.resident.blocks + 1) / rules.shared_unit_bytes * rules.shared_unit_bytes;
      const int64_t to = room - rules.reserved_shared_bytes;
      const Launch with{launch.blocks, launch.block_threads, to};
      KernelResources other = kernel;
      other.static_shared_bytes = 0;
      if (to <= 0 || !better(other, with)) return {};
      return {What::less_shared_memory, to, occupancy(card, other, with).achieved};
    }
    case OccupancyLimit::blocks:
    case OccupancyLimit::warps: {
      // The same threads in blocks of another size. Full multiprocessors cannot gain anything.
      if (now.theoretical >= 1) return {};
      const int64_t threads = launch.blocks * launch.block_threads;
      OccupancyRemedy best;
      for (int block = kWarpThreads; block <= kMostBlockThreads; block += kWarpThreads) {
        const Occupancy with = occupancy(card, kernel, {divided_up<int64_t>(threads, block), block, launch.dynamic_shared_bytes});
        if (with.theoretical > now.theoretical && with.achieved > best.achieved) best = {What::other_block, block, with.achieved};
      }
      return best;
    }
    case OccupancyLimit::count_:
      break;
  }
  return {};
}

}  // namespace gpucast
