// Fitted and chosen numbers of a step's host, order and errors: data/step.json, which says where each comes from.
#pragma once

#include <string>

namespace gpucast {

struct StepConstants {
  double call_ns = 0;     // a launch costs the host this much more with NVIDIA's driver than with the virtual GPU
  double latency_ns = 0;  // from a launch to the kernel's start on an idle GPU
  double reached = 0;     // of the datasheet's rates, by a kernel that has the card for itself
  // What observing costs the host of a step (host_scale()).
  double watched_ns = 0, mark_ns = 0;           // each mark and each allocation; each mark, where hooks were not timed
  double timed_factor = 0, untimed_factor = 0;  // an observed step's time over that of another, less its hooks; with them
  double least_share = 0;                       // of the host's time, that stays whatever is taken off
  double known_share = 0;                       // of one card's error, in its logarithm, that another card's error shares (--known)
};

// `file`: the text of a user's file of constants, over the built-in ones; "" for none. Throws Error for what is no finite positive number.
StepConstants read_step_constants(const std::string& file);
const StepConstants& step_constants();  // the built-in ones

}  // namespace gpucast
