// The fitted and chosen numbers of packing, from data/pack.json with their sources. A user's file may replace them.
#pragma once

#include <string>

namespace gpucast::pack {

// 90 % of measured slowdowns are between low and high times the expected one.

// Time slices since Volta: jobs divide the card's time. If only nvidia-smi's figures of a job are known, its kernels also last longer by a
// part of their time while they meet a neighbour's.
struct SharedTimeConstants {
  double meeting = 0;         // always
  double both_full = 0;       // in addition, if both jobs always have a kernel waiting
  double memory = 0;          // in addition, times the memory share of the time of the neighbour's kernels
  double typical_memory = 0;  // the memory share, if only `busy` is known
  double together = 0;        // all jobs together have kernels for this share of the time at most
  double nvml_busy = 0;       // the share of the time with kernels over nvidia-smi's utilization, which counts short gaps
  double low = 0, high = 0;
};

// MPS since Ampere: kernels of several jobs run at once.
struct SharedCardConstants {
  double together = 0;     // all jobs together have kernels for this share of the time at most, counted as if each ran alone
  double turn_weight = 0;  // a job's part of it grows with the mean time of its kernels to this power
  double low = 0, high = 0;
};

// Time slices up to Pascal: jobs take turns.
struct SliceConstants {
  double cost = 0;           // of a neighbour's turn
  double slice_ns = 0;       // a job releases the card after this much time of kernels, or earlier at the end of its step
  double least_step_ns = 0;  // steps with less time of kernels count as if they had this much
  double low = 0, high = 0;
};

// MPS up to Turing: jobs take turns, kernel by kernel.
struct MpsConstants {
  double cost = 0;             // of a neighbour's turn
  double wave_ends_turn = 0;   // the share of waves after which a neighbour gets a turn
  double launches_ns = 0;      // the part of a turn that its blocks do not need
  double typical_turn_ns = 0;  // of a job whose kernels are not known
  double low = 0, high = 0;
};

struct PackConstants {
  SharedTimeConstants slices_since_volta;
  SliceConstants slices_until_pascal;
  MpsConstants mps;
  SharedCardConstants mps_since_ampere;
  double mps_limits_least_loss = 0;  // the low end of the interval is this part of the expected loss
  double mig_usable_memory = 0;      // the part of a slice's memory that a process can allocate
  double least_gain = 0;             // Policy::loss: sharing must bring more than this on each card
  double good_gain = 0;              // a job with this gain on a card does not look for a better card
  double most_slice_slowdown = 0;    // a policy that weighs slowdowns does not use MIG slices that slow a job more
};

// `file`: the text of a constants file (docs/reference/time-constants.md). Throws Error: it is no such file, or has an unknown constant.
PackConstants read_pack_constants(const std::string& file);

// The built-in ones.
const PackConstants& pack_constants();

}  // namespace gpucast::pack
