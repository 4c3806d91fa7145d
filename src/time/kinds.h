// One function a kind of operation, one file each: how long it takes on a card, and what it waits for. Kinds without one go by their bytes.
#pragma once

#include "src/time/card_rates.h"
#include "src/time/constants.h"
#include "src/time/duration.h"
#include "src/time/operation.h"

namespace gpucast {

struct Estimate {
  double ns = 0;
  Bound bound = Bound::launch;
};

Estimate gemm_time(const Operation& operation, const CardRates& card);
// How the library cuts it: the tile, and how many there are, each part of k counted.
struct GemmTiling {
  double tile_m = 0, tile_n = 0, tiles = 0;
};
GemmTiling gemm_tiling(const Operation& operation, const CardRates& card);
Estimate convolution_time(const Operation& operation, const CardRates& card);
Estimate attention_time(const Operation& operation, const CardRates& card);
Estimate normalization_time(const Operation& operation, const CardRates& card);
Estimate elementwise_time(const Operation& operation, const CardRates& card);
Estimate indexing_time(const Operation& operation, const CardRates& card);
Estimate copy_time(const Operation& operation, const CardRates& card);
Estimate collective_time(const Operation& operation, const CardRates& card);
Estimate recurrent_time(const Operation& operation, const CardRates& card);

// Each kind's constants from the layers.
void read_convolution_constants(const Constants& constants, CardRates* card);
void read_row_constants(const Constants& constants, CardRates* card);

// Shared by them: what two units take that work side by side, and alone would take a and b ns. A short one is hidden behind the longer one;
// two alike take 1 + `overlap` times as long as one: (a^p + b^p)^(1/p) with the p that says so.
double together_ns(double a, double b, double overlap);

// Shared by them: `bytes` moved `passes` times at the rate of L2 or, as far as they do not lie there, of device memory.
double moving_ns(double bytes, double passes, double dram_fraction, const CardRates& card);

// Rows of `columns` elements, each by one block of threads.
Estimate time_by_rows(const Operation& operation, const RowConstants& rows, const CardRates& card);

// Shared by them: `moved`, or as long as the places of `elements` take to compute, where that is longer.
Estimate at_least_places(const Estimate& moved, double elements, double cycles, double floor_ns, const CardRates& card);

// Shared by them: the kind's bytes, as often as it moves them, at the rate of L2 or of device memory, and its launches.
Estimate time_by_bytes(const Operation& operation, const CardRates& card);

}  // namespace gpucast
