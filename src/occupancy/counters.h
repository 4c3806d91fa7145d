// What a card's counters (DCGM, NVML's GPM) show of a launch over its whole time. It is less than the grid's own figures: no block is on a
// multiprocessor at a kernel's very begin and end, multiprocessors end at different times, and some warps end before their block does. The
// last, partial wave is shorter than a full one: its blocks share a multiprocessor with fewer others.
// docs/explanation/occupancy.md explains the parts.
#pragma once

#include "src/occupancy/occupancy.h"

namespace gpucast {

struct CounterConstants {
  double empty_ns = 0;     // of a kernel's time, in which no block runs
  double uneven = 0;       // the multiprocessors' mean end lies before the last one's by this share of a block's time, for one wave
  double most_empty = 1;   // at most this share of a kernel's time is empty
  double busy_warps = 0;   // that keep a multiprocessor as busy as all that fit
  double early_warps = 1;  // kernels that only move data: the part of a block's time in which a warp of it runs, on average
};

struct CounterShares {
  double occupancy = 0, sm_active = 0;
};

// `warps`: the part of a block's warps that are active on average, from 0 to 1.
CounterShares counter_shares(const Occupancy& occupancy, double warps, double duration_ns, const CounterConstants& constants);

}  // namespace gpucast
