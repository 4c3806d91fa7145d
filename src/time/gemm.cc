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
// cuBLAS's kernels for tensor cores until Ada and on GeForce cards, by their names: 256x128, 128x64, ...
constexpr GemmTile kTensorGemmTiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64},
                                         {64, 128},  {64, 64},   {64, 32},   {32, 64},  {32, 32}};
// Since Hopper (nvjet) tiles come in many widths, so that few multiprocessors idle in the last wave.
constexpr GemmTile kNvjetTiles[] = {{64, 8},    {64, 16},   {64, 24},   {64, 32},   {64, 48},  {64, 64},  {64, 96},   {64, 128}, {64, 160},
                                    {64, 192},  {64, 256},  {8, 64},    {16, 64},   {24, 64},  {32, 64},  {48, 64},   {96, 64},  {128, 64},
                                    {160, 64},  {192, 64},  {256, 64},  {128, 8},   {128, 16}, {128, 24}, {128, 32},  {128, 48}, {128, 96},
                                    {128, 128}, {128, 160}, {128, 192}, {128, 256}, {8, 128},  {16, 128}, {24, 128},  {32, 128}, {48, 128},
                                    {96, 128},  {160, 128}, {192, 128}, {256, 128}, {192, 96}, {96, 192}, {192, 192}, {256, 32}, {32, 256},
                                    {256, 96},  {96, 256},  {320, 128}, {128, 320}};
constexpr GemmTile kPlainTiles[] = {{128, 128}, {128, 64}, {64, 128}, {64, 64}, {128, 32}, {32, 128}, {64, 32}, {32, 64}, {32, 32}};
constexpr GemmTile kBatchedPlainTiles[] = {{64, 64}, {128, 32}, {32, 128}, {64, 128}};
// Those that describe a T4's times best: narrow products are not faster than ones of 64 columns.
constexpr GemmTile kTuringBatchedPlainTiles[] = {{64, 64}, {32, 128}, {64, 128}, {128, 128}};
constexpr double kLargestTileOfShortK = 128 * 64;
constexpr double kParts[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};

struct Sizes {
  double batch, m, n, k, element;
};

struct Computation {
  double ns = 0;                                             // of the tiles
  double both_ns = std::numeric_limits<double>::infinity();  // of the tiles, their memory and the sums of parts of k
  double full = 1;                                           // the part of the multiprocessors that have a tile in the last wave
  GemmTiling tiling;
  double memory_ns = 0;  // of memory alone
};

// A kernel as the library has them: its tiles, and what all of them cost.
struct Kernels {
  std::span<const GemmTile> tiles;
  double largest_tile, k_step, latency_cycles, slower, memory_ns;
  bool may_split;
};

// The library cuts the output into tiles; a multiprocessor computes one at a time. It chooses the fastest tile and number of parts of k.
// The sums of the parts follow the products.
Computation compute(const Sizes& s, const Kernels& kernels, double rate, const CardRates& card, const GemmConstants& c) {
  const double cycle_ns = 1e9 / card.clock_hz;
  const double l2_ns_a_byte = 1e9 / (c.l2_bytes_per_cycle * card.multiprocessors * card.clock_hz);
  const double sums_ns_a_part = s.batch * s.m * s.n * 8 * l2_ns_a_byte;  // written and read again, in fp32
  // cuBLAS leaves k whole in small products (measured on an L40S). Matrices times vectors have kernels of their own.
  const bool whole = s.batch * s.m * s.n * s.k < c.whole_products && s.k <= c.whole_k && std::min(s.m, s.n) > 1;
  // On an A100, a k of 128 takes nearly as long as one of 256: kernels for short sums have smaller tiles.
  const double largest_tile = s.k < c.short_k ? std::min(kernels.largest_tile, kLargestTileOfShortK) : kernels.largest_tile;
  Computation best;
  for (const GemmTile& tile : kernels.tiles) {
    if (tile.m * tile.n > largest_tile) continue;
    const bool mostly_empty = (tile.m > 64 && tile.m > 2 * s.m) || (tile.n > 64 && tile.n > 2 * s.n);
    if (mostly_empty && kernels.tiles.size() > 1) continue;
    const double tiles_of_one = s.batch * std::ceil(s.m / tile.m) * std::ceil(s.n / tile.n);
    const double multiply_ns = 1e9 * 2 * tile.m * tile.n / rate * card.multiprocessors * (1 + c.edge * (128 / tile.m + 128 / tile.n - 1.5));
    const double feed_ns = (tile.m + tile.n) * s.element / c.feed_bytes_per_cycle * cycle_ns;
    const double k_ns = std::max({multiply_ns, feed_ns, c.least_k_cycles * cycle_ns});
    // Small tiles share a multiprocessor: while one waits for its next step, another computes.
    const double resident = std::clamp(std::floor(c.resident * 128 * 128 / (tile.m * tile.n)), 1.0, 4.0);
    for (const double parts : kParts) {
      if (parts > 1 && (!kernels.may_split || whole || s.k / parts < c.least_part)) break;
      const double waves = tiles_of_one * parts / card.multiprocessors;
      const double taken = (1 - c.wave_smoothing) * std::ceil(waves) + c.wave_smoothing * std::max(waves, 1.0);
      const double steps = std::ceil(s.k / parts / kernels.k_step) * kernels.k_step;
      const double busy_ns = taken * (k_ns * (steps + c.k_overhead * c.later_overhead) + c.tile_cycles * cycle_ns) +
                             k_ns * c.k_overhead * (1 - c.later_overhead);
      const double chain_ns = std::ceil(std::ceil(waves) / resident) * (kernels.latency_cycles * steps + c.tile_cycles) * cycle_ns;
      double ns = kernels.slower * std::max(busy_ns, chain_ns);
      ns *= 1 + c.throttle * ns / (ns + c.throttle_ns);  // a long kernel heats the card, which lowers its clock
      const double sums_ns = parts > 1 ? c.split_cycles * cycle_ns + parts * sums_ns_a_part : 0;
      if (std::max(ns, kernels.memory_ns) + sums_ns >= best.both_ns) continue;
      const double both_ns = together_ns(ns, kernels.memory_ns, c.overlap) + sums_ns;
      if (both_ns < best.both_ns) best = {ns + sums_ns, both_ns, waves / std::ceil(waves), {tile.m, tile.n, tiles_of_one * parts}};
    }
  }
  return best;
}

// The part of these bytes that is not in L2: none up to `warm` times its size, all from twice that size on.
double cold(double bytes, double warm, double l2_bytes) { return bytes * (1 - std::clamp(2 - bytes / (warm * l2_bytes), 0.0, 1.0)); }

Sizes sizes_of(const Operation& operation) {
  const GemmShape& shape = operation.gemm;
  return {static_cast<double>(shape.batch), static_cast<double>(shape.m), static_cast<double>(shape.n), static_cast<double>(shape.k),
          static_cast<double>(operation.element_bytes)};
}

double memory_ns(const Operation& operation, const CardRates& card, const GemmConstants& c) {
  const Sizes s = sizes_of(operation);
  const double a = s.batch * s.m * s.k * s.element, b = s.batch * s.k * s.n * s.element;
  const double out = s.batch * s.m * s.n * std::max(s.element, operation.precision == Precision::fp8 ? 2.0 : 1.0);  // fp8's sums are wider
  const double l2_bytes = card.l2_bytes / card.l2_copies, at_once = card.multiprocessors * card.clock_hz;
  const double cold_out = cold(out, c.warm_inputs, l2_bytes);
  const double cold_in = cold(a, c.warm_inputs, l2_bytes) + cold(b, s.batch > 1 ? c.warm_inputs : c.warm_weights, l2_bytes);
  return 1e9 * ((cold_in + cold_out) / (card.dram_bytes_per_s * c.dram_fraction) + (a + b - cold_in) / (c.l2_bytes_per_cycle * at_once) +
                (out - cold_out) / (c.store_bytes_per_cycle * at_once));
}

Computation computation_of(const Operation& operation, const CardRates& card) {
  const GemmConstants& c = card.gemm[operation.precision];
  const bool tensor = card.tensor_cores[operation.precision], batched = operation.gemm.batch > 1;
  const bool linear = !batched && operation.gemm.b_transposed;
  const double rate = c.efficiency * card.sustained_flop_per_s[operation.precision];
  const GemmTile only{c.batched_tile_m, c.batched_tile_n};
  Kernels kernels;
  kernels.tiles = tensor && card.capability >= 90 && card.capability < 120 ? std::span<const GemmTile>(kNvjetTiles)
                  : tensor                                                 ? std::span<const GemmTile>(kTensorGemmTiles)
                  : !batched                                               ? std::span<const GemmTile>(kPlainTiles)
                  : only.m * only.n > 1                                    ? std::span<const GemmTile>(&only, 1)
                  : card.capability == 75                                  ? std::span<const GemmTile>(kTuringBatchedPlainTiles)
                                                                           : std::span<const GemmTile>(kBatchedPlainTiles);
  kernels.largest_tile = tensor || !linear ? std::numeric_limits<double>::infinity() : c.largest_tile;
  kernels.may_split = tensor || !batched;
  kernels.k_step = tensor ? 32 : 8;
  kernels.memory_ns = memory_ns(operation, card, c);
  kernels.latency_cycles = tensor || !batched ? c.latency_cycles : std::max(c.latency_cycles, c.batched_latency_cycles);
  kernels.slower = 1;
  if (!tensor && linear) kernels.slower = c.transposed;
  if (tensor) {
    const double together = elements_read_together(operation), element = operation.element_bytes;
    const double flop_per_cycle = rate / (card.multiprocessors * card.clock_hz);
    if (together * element < 16) kernels.slower = std::max(1.0, flop_per_cycle / (together * c.unaligned_flop_per_cycle));
  }
  Computation out = compute(sizes_of(operation), kernels, rate, card, c);
  out.memory_ns = kernels.memory_ns;
  return out;
}

}  // namespace

GemmTiling gemm_tiling(const Operation& operation, const CardRates& card) { return computation_of(operation, card).tiling; }

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
  const GemmConstants& c = card.gemm[operation.precision];
  const Sizes s = sizes_of(operation);
  const double floor_ns = c.floor_cycles * 1e9 / card.clock_hz;
  if (s.batch * s.m * s.n == 0) return {floor_ns, Bound::launch};
  const Computation found = computation_of(operation, card);
  // Where two dimensions are small, cuBLAS uses kernels without tiles that wait for memory (gemmSN).
  const int thin = (s.m <= c.thin) + (s.n <= c.thin) + (s.k <= c.thin);
  if (card.tensor_cores[operation.precision] && thin >= 2 && found.memory_ns * c.thin_passes < found.ns) {
    const double thin_ns = found.memory_ns * c.thin_passes;
    return {floor_ns + thin_ns, floor_ns > thin_ns ? Bound::launch : Bound::memory};
  }
  const Bound bound = floor_ns > found.both_ns      ? Bound::launch
                      : found.memory_ns > found.ns  ? Bound::memory
                      : found.full < card.tail_fill ? Bound::tail
                                                    : Bound::compute;
  return {floor_ns + found.both_ns, bound};
}

}  // namespace gpucast
