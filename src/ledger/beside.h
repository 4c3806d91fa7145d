// What a card holds beside PyTorch's allocator when it runs this job: the ledger, and how much to ask for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/ledger.h"
#include "src/ledger/calibration.h"

namespace gpucast {

// Of the job, whatever the card.
struct JobFacts {
  std::vector<JobClass> classes;
  bool measured_type = true;  // it computes in float32, as the measured runs do
  int64_t peak_reserved_bytes = 0;
  std::string profile_method;         // of a profiler trace; "": no profiler trace, or one of a GPU
  std::string cudnn_asked;            // the version of the user's cuDNN that was asked for all workspaces; "": it was not
  std::string how_to_ask;             // what would have it asked; ""
  std::vector<LedgerLine> own_lines;  // what it itself takes: ledger_from_capture()
  int cuda_major = 0;
};

struct Beside {
  std::vector<LedgerLine> lines;                              // low and high of all lines together hold 90 % of the measured runs
  int64_t low_bytes = 0, expected_bytes = 0, high_bytes = 0;  // sums of the lines
  int64_t least_bytes = 0;                                    // what is surely there: a line below 0 takes nothing away
  int64_t request_bytes = 0;                                  // with the confidence asked for it is no more than this
  std::string request_source;
};

// Invariant: low <= expected <= high, and expected <= request; request grows with `confidence`.
Beside beside_allocator(const Gpu& gpu, const JobFacts& job, double confidence);

}  // namespace gpucast
