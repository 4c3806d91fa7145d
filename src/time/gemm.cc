#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "src/time/kinds.h"

namespace gpucast {
namespace {

struct GemmTile {
  double m, n;
};
constexpr GemmTile kTensorGemmTiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256},
                                         {128, 64},  {64, 128},  {64, 64},   {64, 32},  {32, 64}};
constexpr GemmTile kPlainTiles[] = {{128, 128}, {128, 64}, {64, 128}, {64, 64}, {128, 32}, {32, 128}, {64, 32}, {32, 64}, {32, 32}};
constexpr GemmTile kBatchedPlainTiles[] = {{64, 64}, {128, 32}, {32, 128}, {64, 128}};
constexpr double kParts[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};

struct Compute {
  double ns = std::numeric_limits<double>::infinity();
  double full = 1;  // the part of the multiprocessors that have a tile in the last wave
  GemmTiling tiling;
};

struct Sizes {
  double batch, m, n, k, element;
};

// The library cuts the output into tiles; a multiprocessor computes one at a time. It chooses the fastest tile and number of parts of k.
Compute compute_time(const Sizes& s, std::span<const GemmTile> tiles, double largest_tile, bool may_split, double k_step, double rate,
                     const CardRates& card, const GemmConstants& c) {
  const double cycle_ns = 1e9 / card.clock_hz;
  const double l2_ns_a_byte = 1e9 / (c.l2_bytes_per_cycle * card.multiprocessors * card.clock_hz);
  const double sums_ns_a_part = s.batch * s.m * s.n * 8 * l2_ns_a_byte;  // written and read again, in fp32
  const double clusters = card.capability >= 90 ? 2 : 1;                 // since Hopper, two multiprocessors share the bytes that they read
  Compute best;
  for (const GemmTile& tile : tiles) {
    if (tile.m * tile.n > largest_tile) continue;
    const double tiles_of_one = s.batch * std::ceil(s.m / tile.m) * std::ceil(s.n / tile.n);
    const double multiply_ns = 1e9 * 2 * tile.m * tile.n / rate * card.multiprocessors * (1 + c.edge * (128 / tile.m + 128 / tile.n - 1.5));
    const double feed_ns = (tile.m + tile.n) * s.element / (c.feed_bytes_per_cycle * clusters) * cycle_ns;
    const double k_ns = std::max({multiply_ns, feed_ns, c.least_k_cycles * cycle_ns});
    for (const double parts : kParts) {
      if (parts > 1 && (!may_split || s.k / parts < c.least_part)) break;
      const double waves = tiles_of_one * parts / card.multiprocessors;
      const double taken = (1 - c.wave_smoothing) * std::ceil(waves) + c.wave_smoothing * std::max(waves, 1.0);
      const double steps = std::ceil(s.k / parts / k_step) * k_step + c.k_overhead;
      double ns = taken * (k_ns * steps + c.tile_cycles * cycle_ns);
      if (parts > 1) ns += c.split_cycles * cycle_ns + parts * sums_ns_a_part;
      if (ns < best.ns) best = {ns, waves / std::ceil(waves), {tile.m, tile.n, tiles_of_one * parts}};
    }
  }
  // A long kernel heats the card, which lowers its clock.
  best.ns *= 1 + c.throttle * best.ns / (best.ns + c.throttle_ns);
  return best;
}

// The part of these bytes that is not in L2: none up to `warm` times its size, all from twice that size on.
double cold(double bytes, double warm, double l2_bytes) { return bytes * (1 - std::clamp(2 - bytes / (warm * l2_bytes), 0.0, 1.0)); }

Sizes sizes_of(const Operation& operation) {
  const GemmShape& shape = operation.gemm;
  return {static_cast<double>(shape.batch), static_cast<double>(shape.m), static_cast<double>(shape.n), static_cast<double>(shape.k),
          static_cast<double>(operation.element_bytes)};
}

Compute compute_of(const Operation& operation, const CardRates& card) {
  const GemmConstants& c = card.gemm[operation.precision];
  const bool tensor = card.tensor_cores[operation.precision], batched = operation.gemm.batch > 1;
  const GemmTile only{c.batched_tile_m, c.batched_tile_n};
  const std::span<const GemmTile> tiles = tensor                ? std::span<const GemmTile>(kTensorGemmTiles)
                                          : !batched            ? std::span<const GemmTile>(kPlainTiles)
                                          : only.m * only.n > 1 ? std::span<const GemmTile>(&only, 1)
                                                                : std::span<const GemmTile>(kBatchedPlainTiles);
  const double largest_tile = tensor || batched || !operation.gemm.b_transposed ? std::numeric_limits<double>::infinity() : c.largest_tile;
  return compute_time(sizes_of(operation), tiles, largest_tile, tensor || !batched, tensor ? 32 : 8,
                      card.sustained_flop_per_s[operation.precision], card, c);
}

}  // namespace

GemmTiling gemm_tiling(const Operation& operation, const CardRates& card) { return compute_of(operation, card).tiling; }

// Tensor cores read 16 bytes at a time. Where a matrix has rows that do not begin at a multiple of 16 bytes, kernels read as many elements
// at a time as begin at a multiple of their bytes, and do not reach the tensor cores' rate.
double elements_read_together(const Operation& operation) {
  const GemmShape& shape = operation.gemm;
  const Sizes s = sizes_of(operation);
  const double rows[] = {shape.a_transposed ? s.m : s.k, shape.b_transposed ? s.k : s.n, s.n};
  double together = 16 / s.element;
  for (const double row : rows) {
    while (together > 1 && std::fmod(row, together) != 0) together /= 2;
  }
  return together;
}

Estimate gemm_time(const Operation& operation, const CardRates& card) {
  const GemmShape& shape = operation.gemm;
  const GemmConstants& c = card.gemm[operation.precision];
  const Sizes s = sizes_of(operation);
  const double floor_ns = c.floor_cycles * 1e9 / card.clock_hz;
  if (s.batch * s.m * s.n == 0) return {floor_ns, Bound::launch};
  const bool tensor = card.tensor_cores[operation.precision], batched = shape.batch > 1;
  Compute compute = compute_of(operation, card);
  const double element = s.element;
  if (!tensor && !batched && shape.b_transposed) compute.ns *= c.transposed;
  if (tensor) {
    const double together = elements_read_together(operation);
    const double flop_per_cycle = card.sustained_flop_per_s[operation.precision] / (card.multiprocessors * card.clock_hz);
    if (together * element < 16) compute.ns *= std::max(1.0, flop_per_cycle / (together * c.unaligned_flop_per_cycle));
  }
  const double a = s.batch * s.m * s.k * element, b = s.batch * s.k * s.n * element, out = s.batch * s.m * s.n * element;
  const double l2_bytes = card.l2_bytes / card.l2_copies;
  const double from_dram =
      cold(a, c.warm_inputs, l2_bytes) + cold(b, batched ? c.warm_inputs : c.warm_weights, l2_bytes) + cold(out, c.warm_inputs, l2_bytes);
  const double memory_ns =
      1e9 * (from_dram / card.dram_bytes_per_s + (a + b + out - from_dram) / (c.l2_bytes_per_cycle * card.multiprocessors * card.clock_hz));
  // Where two dimensions are small, cuBLAS uses kernels without tiles that wait for memory (gemmSN).
  const int thin = (s.m <= c.thin) + (s.n <= c.thin) + (s.k <= c.thin);
  if (tensor && thin >= 2 && memory_ns * c.thin_passes < compute.ns) {
    const double thin_ns = memory_ns * c.thin_passes;
    return {floor_ns + thin_ns, floor_ns > thin_ns ? Bound::launch : Bound::memory};
  }
  const double both_ns = together_ns(compute.ns, memory_ns, c.overlap);
  const Bound bound = floor_ns > both_ns              ? Bound::launch
                      : memory_ns > compute.ns        ? Bound::memory
                      : compute.full < card.tail_fill ? Bound::tail
                                                      : Bound::compute;
  return {floor_ns + both_ns, bound};
}

}  // namespace gpucast
