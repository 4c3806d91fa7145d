// Does it fit? What is compared is kept apart from how it was found, so that every card of the table is judged alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gpucast/prediction.h"
#include "src/ledger/beside.h"
#include "src/predict/least_capacity.h"

namespace gpucast {

struct Need {
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  bool ended_in_oom = false;  // on this very card: the run stopped because the card was full
  bool cut_by_oom = false;    // on another card: the peaks are only what was reached before
  // Whether it runs when the allocator can get so many bytes: a replay, or a comparison with the least capacity.
  std::function<RunsAt(int64_t capacity_bytes)> runs_at;
  std::string nothing_to_judge = {};  // why, in a sentence; "" when the peaks are those of the job
};

struct Judgement {
  Verdict verdict = Verdict::fits;
  bool needs_reclaim = false;
  std::string reason;
  DeviceBytes device;
};

// fits: what to ask for is within the card. does_not_fit: the history does not run on the card less what is surely there beside the
// allocator, whatever PyTorch gives back, or the run ended in OOM. tight: between the two. none: what was seen fits, and is too little.
Judgement judge_need(const Need& need, const Beside& beside, int64_t total_bytes);

}  // namespace gpucast
