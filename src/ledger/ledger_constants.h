// Fitted and chosen numbers of the device ledger and the calibrated ranges: data/ledger.json, which says where each comes from.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "gpucast/ledger.h"

namespace gpucast {

// Of a card on which the amounts beside the allocator were measured.
struct MeasuredLedger {
  double context_low_mib = 0, context_mib = 0, context_high_mib = 0;
  double kernels_low_mib = 0, kernels_mib = 0, kernels_high_mib = 0;
};

struct LedgerConstants {
  std::unordered_map<std::string, MeasuredLedger> measured;  // by the card's id
  double other_release_mib = 0;                              // upper ends of these cards are that much higher with another CUDA release
  // A context keeps a stack for every thread that can be resident at once, and it grows in proportion; what a process with PyTorch holds
  // beyond its context grows with the stacks, too.
  double stack_kib_per_thread = 0;
  double context_base_mib = 0, context_per_stack_mib = 0, context_least = 0, context_most = 0;
  double kernels_base_mib = 0, kernels_per_stack_mib = 0, kernels_least = 0, kernels_more_mib = 0;
  double profile_error = 0;        // of peak reserved, predicted from a CPU's profile
  double interval_confidence = 0;  // of each end of a calibrated range
};

// `text`: as of data/ledger.json. Throws Error where a number or its source is missing.
LedgerConstants parse_ledger_constants(const char* text);
const LedgerConstants& ledger_constants();  // the built-in ones

// device_ledger() by other numbers.
std::vector<LedgerLine> device_ledger(const Gpu& gpu, int cuda_major, const LedgerConstants& constants);

}  // namespace gpucast
