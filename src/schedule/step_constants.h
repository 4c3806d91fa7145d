// Fitted and chosen numbers for the host's time, the order of work and the errors of a step, from data/step.json, with their sources.
#pragma once

#include <string>

namespace gpucast {

struct StepConstants {
  double call_ns = 0;  // a launch costs the host this much more with NVIDIA's driver than with the virtual GPU
  // How long the host of a card takes for yardstick_ns() of src/vgpu/core/host_speed.h.
  double yardstick_ns = 0;
  // The host of a card that is not here: its time over the expected one, at the 5th and the 95th percentile.
  double fast_host = 0, slow_host = 0;
  double latency_ns = 0;  // from a launch to the kernel's start on an idle GPU
  double reached = 0;     // the part of the datasheet's rates that a kernel reaches alone on the card
  // How much longer the host's time in an observed step is (host_scale()).
  double recorded_ns = 0, hook_ns = 0;  // for each allocation; for each mark, in addition to the timed part
  double mark_ns = 0;                   // for each mark, where hooks were not timed
  double timed_factor = 0,
         untimed_factor = 0;  // an observed step's time over another step's: with timed hooks subtracted; with hooks included
  double least_share = 0;     // at least this part of the host's time remains after all subtractions
  // What the card's counters show of a kernel (CounterConstants of src/occupancy/counters.h).
  double empty_ns = 0, uneven = 0, most_empty = 0, busy_warps = 0, early_warps = 0;
  double known_share = 0;  // another card's error is this power of the error on the known card (--known)
  double known_width = 1;  // and its interval is this many times as wide, in logarithms
};

// `file`: the text of a user's constants file, which replaces built-in values; "" for none. Throws Error for a value that is no finite
// positive number.
StepConstants read_step_constants(const std::string& file);
const StepConstants& step_constants();  // the built-in ones

}  // namespace gpucast
