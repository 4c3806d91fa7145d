// The duration of an operation on a card, and what it waits for: one function and one file for each kind. Kinds without a function are
// timed by their bytes.
#pragma once

#include "src/time/card_rates.h"
#include "src/time/constants.h"
#include "src/time/duration.h"
#include "src/time/operation.h"

namespace gpucast {

// From a load to its value from device memory, of cards since 2017 (src/kernels/ptx_code.h).
inline constexpr double kLoadCycles = 500;

struct Estimate {
  double ns = 0;
  Bound bound = Bound::launch;
};

Estimate gemm_time(const Operation& operation, const CardRates& card);
// How the library cuts a product: the tile's size, and the number of tiles (each part of k counts).
struct GemmTiling {
  double tile_m = 0, tile_n = 0, tiles = 0;
};
GemmTiling gemm_tiling(const Operation& operation, const CardRates& card);
// The elements that a product's kernel reads at a time: 16 bytes, or less where a matrix has rows that begin elsewhere.
double elements_read_together(const Operation& operation);
Estimate convolution_time(const Operation& operation, const CardRates& card);
// What a convolution of one pass runs: its products in this precision, and the part of its time in which other kernels change the layout
// of its tensors or pad them.
struct ConvolutionKernels {
  Precision precision = Precision::fp32;
  double turned_share = 0;
};
ConvolutionKernels convolution_kernels(const Operation& operation, const CardRates& card);
Estimate attention_time(const Operation& operation, const CardRates& card);
Estimate normalization_time(const Operation& operation, const CardRates& card);
Estimate elementwise_time(const Operation& operation, const CardRates& card);
Estimate indexing_time(const Operation& operation, const CardRates& card);
Estimate copy_time(const Operation& operation, const CardRates& card);
Estimate collective_time(const Operation& operation, const CardRates& card);
Interval collective_interval(const Operation& operation, const CardRates& card);
Estimate recurrent_time(const Operation& operation, const CardRates& card);
// Of a kernel whose code was counted, whatever its kind.
Estimate counted_time(const Operation& operation, const CardRates& card);

// Read the constants of a kind into `card`.
void read_convolution_constants(const Constants& constants, CardRates* card);
void read_row_constants(const Constants& constants, CardRates* card);
void read_counted_constants(const Constants& constants, CardRates* card);

// The functions below are shared by the kinds.

// The time of two units that work at the same time and would need a and b ns alone. A much shorter one adds nothing; two of equal length
// need (1 + `overlap`) times the length of one. The formula is (a^p + b^p)^(1/p), with p chosen for `overlap`.
double together_ns(double a, double b, double overlap);

// `bytes` moved `passes` times: bytes that are in L2 at the rate of L2, the others at the rate of device memory.
double moving_ns(double bytes, double passes, double dram_fraction, const CardRates& card);

// The part of `bytes` that L2 does not hold: none up to l2_full of its size, all from l2_none on, each times a factor.
double beyond_l2(double bytes, const CardRates& card, double full = 1, double none = 1);

// Rows of `columns` elements, each by one block of threads.
Estimate time_by_rows(const Operation& operation, const RowConstants& rows, const CardRates& card);

// `moved`, or the time to compute the addresses of `elements`, whichever is longer.
Estimate at_least_places(const Estimate& moved, double elements, double cycles, double floor_ns, const CardRates& card);

// `moved`, or the time to begin this number of blocks, whichever is longer.
Estimate at_least_blocks(const Estimate& moved, int64_t blocks, double floor_ns, const CardRates& card);

// PyTorch's kernels that only write, and compute nothing.
bool is_fill(const Operation& operation);

// The kind's bytes, as often as it moves them, at the rate of L2 or of device memory, and its launches.
Estimate time_by_bytes(const Operation& operation, const CardRates& card);

}  // namespace gpucast
