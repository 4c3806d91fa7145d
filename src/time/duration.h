// How long an operation takes on a card: pure functions of the operation, the card and constants. docs/explanation/kernel-time.md draws the
// model; data/time/*.json holds the constants, each with its source.
#pragma once

#include <cstdint>
#include <string>

#include "gpucast/gpu.h"
#include "src/time/card_rates.h"
#include "src/time/operation.h"

namespace gpucast {

// What an operation waits for: arithmetic; device memory; the least time of a launch; its last wave, which leaves multiprocessors idle; the
// bus to the host or between cards.
enum class Bound : uint8_t { compute, memory, launch, tail, link, count_ };
const char* bound_name(Bound bound);

struct Duration {
  double expected_ns = 0;
  double low_ns = 0, high_ns = 0;  // 90 % of measured times are between these
  Bound bound = Bound::launch;
  double ideal_ns = 0;  // at the datasheet's rates: the longer of the FLOPs' time and the bytes' time
};

// The card with its constants looked up: made once, used for each operation. Constants come in three layers, the later over the earlier:
// operation and precision; architecture; card.
// `constants_json`: "" for the ones built in; else a file of constants, as text (docs/reference/time-constants.md).
// Throws Error for a card without bandwidth or peak rates, and for constants that are no finite positive number.
bool has_rates(const Gpu& gpu);  // card_rates() does not throw for it
CardRates card_rates(const Gpu& gpu, const std::string& constants_json = "");

Duration operation_duration(const Operation& operation, const CardRates& card);

// A fill of at least L2's size leaves nothing else in L2. Benchmarks do this before each measurement.
bool sweeps_l2(const Operation& operation, const CardRates& card);
// How much longer an operation of this duration takes right after such a fill: its bytes come from device memory, and their places in L2
// must be written back first where the fill's bytes are still there.
double after_sweep_ns(const Operation& operation, const Duration& duration, const CardRates& card);

}  // namespace gpucast
