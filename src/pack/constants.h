// The numbers of packing that were fitted or chosen: data/pack.json, which has the source of each, with a user's file over it.
#pragma once

#include <string>

namespace gpucast::pack {

// 9 of 10 measured slowdowns lie between low and high times the expected one.

// Time slices from Volta on. Where a kernel meets a neighbour's it takes longer by this part of its time.
struct MeetingConstants {
  double meeting = 0;         // always
  double both_full = 0;       // more, where both jobs always have a kernel waiting
  double memory = 0;          // more, times the share of the neighbour's kernels' time that goes to memory
  double together = 0;        // all jobs have kernels for this much of the time at most
  double typical_memory = 0;  // that share, if only `busy` is known
  double low = 0, high = 0;
};

// Time slices up to Pascal: jobs take turns.
struct SliceConstants {
  double cost = 0;           // of a neighbour's turn
  double slice_ns = 0;       // of kernels, after which a job gives the card away, unless its step ends before
  double least_step_ns = 0;  // steps with less time of kernels count as this
  double low = 0, high = 0;
};

// MPS: jobs take turns, kernel by kernel.
struct MpsConstants {
  double cost = 0;             // of a neighbour's turn
  double wave_ends_turn = 0;   // the share of waves after which a neighbour comes in
  double launches_ns = 0;      // of a turn, besides its blocks
  double typical_turn_ns = 0;  // of a job whose kernels are not known
  double low = 0, high = 0;
};

struct PackConstants {
  MeetingConstants slices_since_volta;
  SliceConstants slices_until_pascal;
  MpsConstants mps;
  double mps_limits_least_loss = 0;  // the interval begins at this part of the expected loss
  double mig_usable_memory = 0;      // of a slice's memory, what a process can allocate
  double least_gain = 0;             // Policy::loss: sharing must bring more than this on each card
  double good_gain = 0;              // a job with that much gain on a card looks for no other
  double most_slice_slowdown = 0;    // a policy that weighs slowdowns leaves out MIG slices that slow a job more
};

// `file`: the text of a constants file (docs/reference/time-constants.md). Throws Error: it is none, or has what is no constant.
PackConstants read_pack_constants(const std::string& file);

// The built-in ones.
const PackConstants& pack_constants();

}  // namespace gpucast::pack
