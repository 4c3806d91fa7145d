// The power that a card draws, from what a step does with it. data/power.json holds the constants, with their sources.
#pragma once

#include <string>

#include "gpucast/gpu.h"
#include "gpucast/power.h"
#include "gpucast/time_range.h"
#include "src/time/card_rates.h"
#include "src/time/duration.h"
#include "src/time/operation.h"

namespace gpucast {

// Shares of the power limit that a board comes with.
struct PowerConstants {
  double idle_stacked = 0, idle_other = 0;   // held by a process, idle: cards with stacked memory (HBM); other cards
  double busy = 0;                           // in addition, while some kernel runs
  double tensor = 0, plain = 0, memory = 0;  // in addition, at all of the datasheet's rate
  double before_volta = 1;                   // older cards: the work's part of the power is multiplied by this
  double most = 1;                           // a card at its limit draws this share of it
  double low = 1, high = 1;                  // measured / expected, of a card far below its limit
  double limited_low = 1;                    // the same, of a card at its limit; it never draws more than its limit
};

// `file`: the text of a user's constants file; "" for none. Throws Error for a value that is no finite positive number.
PowerConstants read_power_constants(const std::string& file);
const PowerConstants& power_constants();  // the built-in ones

// Work of a step, as the time that it would need at the datasheet's rates, if it took all of that time.
struct CardWork {
  double busy_ns = 0;
  double tensor_ns = 0, plain_ns = 0, memory_ns = 0;
};

// Adds this many times the operation. It does not use a unit for longer than it runs: bytes may come from L2.
void add_work(const Operation& operation, const Duration& duration, const CardRates& card, double times, CardWork* work);

CardUse card_use(const CardWork& work, double step_ns);

// The board's power while a process holds it, and no kernel runs. 0: the card's power limit is not known.
double idle_power_w(const Gpu& gpu, const PowerConstants& constants);

// `limited`: null, or whether the power limit holds the card back.
PowerRange card_power(const Gpu& gpu, const CardUse& use, const PowerConstants& constants, bool* limited = nullptr);

// The mean power over a step, and its energy. `gpu_bound`: a longer step is one with slower kernels; else one in which the card waits for
// longer. The errors of the constants and of the step's time do not depend on each other.
CardPower power_of_step(const Gpu& gpu, const CardWork& work, const TimeRange& step, bool gpu_bound, const PowerConstants& constants);

}  // namespace gpucast
