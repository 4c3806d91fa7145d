// A card's memory outside of PyTorch's allocator when it runs this job: the ledger, and the total to request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/ledger.h"
#include "src/ledger/calibration.h"

namespace gpucast {

// Facts about the job that are the same for every card.
struct JobFacts {
  std::vector<JobClass> classes;
  bool measured_type = true;  // it computes in float32, as the measured runs do
  int64_t peak_reserved_bytes = 0;
  std::string profile_method;         // of a profiler trace; "": no profiler trace, or one of a GPU
  std::string cudnn_asked;            // the version of the user's cuDNN that gave all workspace sizes; "": none did
  std::string how_to_ask;             // how to get them from cuDNN; "": nothing to do
  std::vector<LedgerLine> own_lines;  // lines from the capture: ledger_from_capture()
  int cuda_major = 0;
};

struct Beside {
  std::vector<LedgerLine> lines;                              // low and high of all lines together hold 90 % of the measured runs
  int64_t low_bytes = 0, expected_bytes = 0, high_bytes = 0;  // sums of the lines
  int64_t least_bytes = 0;                                    // certainly used: a line below 0 does not reduce it
  int64_t request_bytes = 0;                                  // not exceeded with the requested confidence
  std::string request_source;
};

// Invariant: low <= expected <= high, and expected <= request; request grows with `confidence`.
Beside beside_allocator(const Gpu& gpu, const JobFacts& job, double confidence);

}  // namespace gpucast
