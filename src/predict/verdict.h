// Does the job fit a card? The figures are separate from the way they were found, so that every card of the table is judged in the same
// way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gpucast/prediction.h"
#include "src/ledger/beside.h"
#include "src/predict/least_capacity.h"

namespace gpucast {

struct MemoryNeed {
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  bool ended_in_oom = false;  // on the judged card: the run stopped because the card was full
  bool cut_by_oom = false;    // on another card: the run stopped before it reached its peaks
  // Whether the job runs if the allocator can get this many bytes: a replay, or a comparison with the least capacity.
  std::function<RunsAt(int64_t capacity_bytes)> runs_at;
  std::string nothing_to_judge = {};  // why the peaks are not the job's, in a sentence; "": they are
};

struct Judgement {
  Verdict verdict = Verdict::fits;
  bool needs_reclaim = false;
  std::string reason;
  DeviceBytes device;
};

// fits: the request is within the card. does_not_fit: the run ended in OOM, or the history does not run in the card's memory without the
// part that is certainly used outside of the allocator, even if PyTorch gives cached memory back. tight: between the two. none: the
// recorded part fits, but is too short for a verdict.
Judgement judge_need(const MemoryNeed& need, const Beside& beside, int64_t total_bytes);

}  // namespace gpucast
