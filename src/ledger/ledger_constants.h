// Fitted and chosen numbers of the device ledger and the calibrated ranges, from data/ledger.json, with their sources.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "gpucast/ledger.h"

namespace gpucast {

// Measured memory outside of the allocator, for one card.
struct MeasuredLedger {
  double context_low_mib = 0, context_mib = 0, context_high_mib = 0;
  double kernels_low_mib = 0, kernels_mib = 0, kernels_high_mib = 0;
  int cuda_major = 0;  // of the release that was measured
};

struct LedgerConstants {
  std::unordered_map<std::string, MeasuredLedger> measured;  // by the card's id
  double other_release_mib = 0;                              // with another CUDA release, the upper ends are higher by this
  // A context has a stack for every thread that can be resident at once, so it grows with the number of threads. A PyTorch process's other
  // memory grows with the stacks, too.
  double stack_kib_per_thread = 0;
  double context_base_mib = 0, context_per_stack_mib = 0, context_least = 0, context_most = 0;
  double kernels_base_mib = 0, kernels_per_stack_mib = 0, kernels_least = 0, kernels_more_mib = 0;
  double profile_error = 0;        // of peak reserved predicted from a profile of a CPU run
  double interval_confidence = 0;  // of each end of a calibrated range
};

// `text`: in the format of data/ledger.json. Throws Error if a number or its source is missing.
LedgerConstants parse_ledger_constants(const char* text);
const LedgerConstants& ledger_constants();  // the built-in ones

// device_ledger() with other numbers.
std::vector<LedgerLine> device_ledger(const Gpu& gpu, int cuda_major, const LedgerConstants& constants);

}  // namespace gpucast
