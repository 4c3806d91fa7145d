// A kernel whose code was counted (src/kernels): what its multiprocessors, the memory and the longest warp need, side by side.
#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"

namespace gpucast {
namespace {

constexpr double kSectorBytes = 32, kLineBytes = 128, kWarp = 32;

// The blocks that a multiprocessor holds at once.
double resident_blocks(const CountedWork& work, const CardRates& card) {
  if (card.occupancy.rules == nullptr) return 1;
  KernelResources kernel;
  kernel.registers = work.registers;
  const int blocks = blocks_per_multiprocessor(card.occupancy, kernel, work.block_threads, work.shared_bytes).blocks;
  return std::max(1, blocks);
}

// Registers that did not fit. No other block reads them; what the blocks at work load and store takes their place in L1 and L2.
struct Spilled {
  double l2_bytes = 0, dram_bytes = 0;
};
Spilled spilled(const CountedWork& work, double resident, double at_once, const CardRates& card) {
  constexpr double kLeastL1Bytes = 28 << 10;  // with all shared memory in use
  if (work.block_spilled_bytes <= 0 || work.blocks <= 0) return {};
  const double block_in_use = work.block_spilled_bytes + work.block_bytes / (work.blocks * work.spills);
  const double l1_bytes = kLeastL1Bytes + card.occupancy.shared_bytes - resident * static_cast<double>(work.shared_bytes);
  if (resident * work.block_spilled_bytes <= l1_bytes) return {};
  Spilled out;
  out.l2_bytes = 2 * work.blocks * work.block_spilled_bytes * work.spills;
  out.dram_bytes = out.l2_bytes * beyond_l2(at_once * block_in_use, card);
  return out;
}

// Device memory moves each sector once, and again what a block reads a second time when the blocks at work have replaced it in L2. Sectors
// that a block uses only in part are used by its neighbours at about the same time, unless no block uses the rest. Tiles are taken to come
// from L2.
double memory_ns(const CountedWork& work, double resident, double at_once, const CardRates& card) {
  const CountedConstants& c = card.counted;
  const double requested = work.sectors * kSectorBytes + work.async_bytes;
  const double touched = std::max(work.touched_bytes, work.unique_bytes), of_blocks = std::max(work.block_touched_bytes, work.block_bytes);
  const double shared_by = touched > 0 && work.block_bytes > 0 ? of_blocks / work.block_bytes * work.unique_bytes / touched : 1;
  const double again = std::max(0.0, requested - work.tile_bytes - of_blocks) / std::max(1.0, shared_by);
  const double in_use = work.blocks > 0 ? std::min(at_once * work.block_load_bytes / work.blocks, work.unique_load_bytes) : 0;
  // Blocks that read the same bytes read them at about the same time, so these bytes are in L2. Rows that are read by their numbers come in
  // any order: a row that comes again is in L2 if all rows are.
  const double gathered = work.gathered_sectors * kSectorBytes, rows = std::min(gathered, work.unique_load_bytes);
  const double rows_again = (gathered - rows) * beyond_l2(rows / work.rows_of_blocks, card);
  const Spilled spills = spilled(work, resident, at_once, card);
  const double dram_bytes = touched * beyond_l2(touched, card) + again * beyond_l2(in_use, card) + rows_again + spills.dram_bytes;
  const double lines = std::max(1.0, work.atomic_bytes / kLineBytes);
  const double atomic_ns =
      1e9 / card.clock_hz *
      std::max(work.atomic_sectors * c.atomic_cycles / card.multiprocessors, work.atomic_passes * c.atomic_pass_cycles / std::sqrt(lines));
  // Requests of several blocks for the same bytes are answered together. Tiles are shared.
  const double alone = std::min(requested, work.unique_bytes);
  const double l2_cycles = (alone + spills.l2_bytes) / c.l2_bytes_per_cycle + (requested - alone) / c.l2_shared_bytes_per_cycle;
  return std::max(
      {1e9 * dram_bytes / (card.dram_bytes_per_s * c.dram_fraction), 1e9 * l2_cycles / (card.multiprocessors * card.clock_hz), atomic_ns});
}

// Cycles of one multiprocessor for the whole launch: its slowest pipe, or the instructions that it issues. `tensor`: of matrix
// instructions alone.
struct Cycles {
  double tensor = 0, other = 0;
};
Cycles cycles_of(const CountedWork& work, const CardRates& card) {
  const CountedConstants& c = card.counted;
  const double fp32_lanes = card.peak_flop_per_s[Precision::fp32] / (2 * card.multiprocessors * card.clock_hz);
  const double fp64_lanes = card.peak_flop_per_s[Precision::fp64] / (2 * card.multiprocessors * card.clock_hz);
  const double issued =
      (work.fp32 + work.fp16 + work.fp64 + work.integer + work.division + work.special + work.control + work.memory) / c.issue_per_cycle;
  Cycles out;
  out.other = std::max({issued, (work.fp32 + work.fp16) * kWarp / fp32_lanes, work.fp64 * kWarp / fp64_lanes,
                        work.integer * kWarp / c.integer_lanes, work.special * kWarp / c.special_lanes, work.shared_wavefronts});
  for (size_t p = 0; p < work.tensor_flops.size(); ++p) {
    const auto precision = static_cast<Precision>(p);
    const double rate = card.sustained_flop_per_s[precision] / (card.multiprocessors * card.clock_hz);
    if (work.tensor_flops[p] > 0) out.tensor += work.tensor_flops[p] / (rate * c.tensor_fraction * card.gemm[precision].efficiency);
  }
  return out;
}

}  // namespace

Estimate counted_time(const Operation& operation, const CardRates& card) {
  const CountedWork& work = operation.counted;
  const CountedConstants& c = card.counted;
  const double cycle_ns = 1e9 / card.clock_hz, multiprocessors = card.multiprocessors;
  const double floor_ns = std::max<double>(1, static_cast<double>(operation.launches)) * c.floor_ns;
  const double resident = resident_blocks(work, card), at_once = std::min(work.blocks, multiprocessors * resident);
  if (work.blocks <= 0) return {floor_ns, Bound::launch};

  // A multiprocessor's share of the blocks, in whole blocks where there are few.
  const double share = work.blocks / multiprocessors;
  const double taken = (1 - c.wave_smoothing) * std::ceil(share) + c.wave_smoothing * std::max(share, 1.0);
  const Cycles cycles = cycles_of(work, card);
  // Where blocks are not alike, some multiprocessors end with a long one.
  const double longer = work.mean.cycles > 0 ? std::max(0.0, work.longest.cycles / work.mean.cycles - 1) / 2 : 0;
  const double uneven = share > 1 ? 1 + std::min(1.0, longer / share) : 1;
  double compute_ns = together_ns(cycles.tensor, cycles.other, c.pipe_overlap) / work.blocks * taken * uneven * cycle_ns;
  if (cycles.tensor > cycles.other) {  // a long product heats the card, which lowers its clock
    const GemmConstants& gemm = card.gemm[operation.precision];
    compute_ns *= 1 + gemm.throttle * compute_ns / (compute_ns + gemm.throttle_ns);
  }
  // A chain's loads are counted as kLoadCycles. Device memory answers after a time that does not depend on the clock.
  const double slower = c.load_ns / (kLoadCycles * cycle_ns) - 1;
  const auto chain_cycles = [&](const WarpChain& chain) { return std::max(0.0, chain.cycles + slower * chain.load_cycles); };
  // The blocks that a multiprocessor holds go through their chains at the same time.
  const double chain_ns =
      std::max(chain_cycles(work.longest), chain_cycles(work.mean) * (work.blocks / (multiprocessors * resident) + longer)) * cycle_ns;
  const double begun_ns = work.blocks * c.block_cycles * cycle_ns;  // blocks begin one after another
  const double moved_ns = std::max(memory_ns(work, resident, at_once, card), begun_ns);
  const double busy_ns = together_ns(compute_ns, chain_ns, c.chain_overlap);
  // A block that waits for each of its loads does nothing meanwhile; other blocks of its multiprocessor do.
  const double waits = work.mean.loads > 0 ? std::min(1.0, work.mean.load_cycles / (work.mean.loads * kLoadCycles)) : 0;
  const double ns = together_ns(moved_ns, busy_ns, std::max(c.overlap, waits / std::clamp(share, 1.0, resident)));
  const Bound bound = floor_ns > ns                                                                                 ? Bound::launch
                      : (chain_ns > moved_ns && chain_ns > compute_ns) || share < card.tail_fill * std::ceil(share) ? Bound::tail
                      : moved_ns > compute_ns                                                                       ? Bound::memory
                                                                                                                    : Bound::compute;
  return {floor_ns + ns, bound};
}

void read_counted_constants(const Constants& constants, CardRates* card) {
  const auto of = [&](const char* name) { return constants.of_operation(OperationKind::compiled, Precision::fp32, name); };
  card->counted = {of("dram_fraction"),  of("l2_bytes_per_cycle"), of("l2_shared_bytes_per_cycle"),
                   of("floor_ns"),       of("atomic_cycles"),      of("atomic_pass_cycles"),
                   of("load_ns"),        of("block_cycles"),       of("issue_per_cycle"),
                   of("integer_lanes"),  of("special_lanes"),      of("tensor_fraction"),
                   of("wave_smoothing"), of("pipe_overlap"),       of("overlap"),
                   of("chain_overlap")};
}

}  // namespace gpucast
