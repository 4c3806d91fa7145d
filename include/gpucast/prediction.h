// Everything a report shows, as plain structs. Reports compute nothing; they only print this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/convolutions.h"
#include "gpucast/failed_rank.h"
#include "gpucast/growth.h"
#include "gpucast/ledger.h"
#include "gpucast/profile_summary.h"
#include "gpucast/ranks.h"
#include "gpucast/time_range.h"
#include "gpucast/what_if.h"

namespace gpucast {

// none: too little to judge, e.g. the script raised before its first optimizer step.
// grows: it fits or is tight now, but its memory grows from step to step.
enum class Verdict : uint8_t { fits, tight, grows, does_not_fit, none };
const char* verdict_name(Verdict verdict);  // as in JSON: "fits", "tight", "does_not_fit", "none", "grows"
inline bool fits_now(Verdict verdict) { return verdict < Verdict::does_not_fit; }

// Where something happened in the run.
struct Place {
  int64_t event = 0;               // index in the allocator's history, from 0
  std::string phase;               // "forward", "backward", ...
  int32_t step = 0;                // 0: before the first step
  std::string module;              // "layer1.0.conv1 (Conv2d)", "" outside of modules
  std::vector<std::string> stack;  // innermost first: "train.py:17 main"; may be empty
};

struct PeakAt {
  int64_t bytes = 0;
  int64_t allocated_bytes = 0, reserved_bytes = 0;  // both at that moment
  Place place;
};

struct CategoryLine {
  std::string name;
  int64_t bytes = 0;
};

// The highest values while step `step` ran. Memory that the previous step left allocated counts too.
struct StepPeak {
  int32_t step = 0;
  bool complete = false;
  int64_t allocated_bytes = 0, reserved_bytes = 0;
};

struct PhasePeak {
  std::string phase;
  int64_t allocated_bytes = 0, reserved_bytes = 0;
};

// All of the device's memory: the allocator's reserved memory at its peak, plus the ledger's low, expected and high. `request_bytes` is the
// memory to request from a scheduler.
struct DeviceBytes {
  int64_t low_bytes = 0, expected_bytes = 0, high_bytes = 0;
  int64_t request_bytes = 0;
};

struct CardFit {
  std::string gpu;
  int64_t total_bytes = 0;
  Verdict verdict = Verdict::fits;
  DeviceBytes device;
  bool same_capability = true;  // false: its libraries choose other kernels and workspaces
};

struct OomPlace {
  Place place;
  int64_t requested_bytes = 0, free_bytes = 0;
  int64_t count = 0;       // all failed allocations; the place is the last one's
  bool ended_run = false;  // the run ended with it
};

struct Warning {
  std::string code, message;
};

struct Prediction {
  std::string source;  // "vgpu", "cpu_profile", "snapshot"

  std::string gpu_id, gpu_name;
  int64_t gpu_total_bytes = 0;
  bool gpu_total_measured = false;
  bool gpu_chosen = false;      // false: the user named no card
  std::string captured_gpu_id;  // of the capture; differs if analyze got another card
  bool enforced_capacity = false;

  std::string torch, cuda, python;
  std::vector<std::string> command;
  std::vector<WhatIf> what_if;  // changes of `gpucast run --what-if` to the script
  int64_t rank = 0, world_size = 1, device_index = 0;
  std::string rank_options;    // of the run: " --gpus 4", " --gpus 8 --world-size 64 --ranks 0"
  std::optional<Ranks> ranks;  // if several ranks or devices were captured: this prediction is the deciding one

  int32_t steps = 0;  // completed optimizer steps
  int64_t steps_requested = 0;
  // The peak of reserved including attempts that ran out of memory. 0: none; otherwise the other peaks are those after the attempts.
  int64_t failed_attempts_reserved_bytes = 0;
  std::string steps_rule;  // "auto", "until-end"; "": steps_requested
  std::string end_reason;  // steps, script_end, exception, timeout, interrupted, killed, "" unknown
  bool partial = false;    // killed: only the virtual GPU's own data, which is reserved memory
  std::vector<FailedRank> failed_ranks;
  int64_t events = 0, kernels = 0, library_calls = 0;

  Verdict verdict = Verdict::fits;
  std::string verdict_reason;  // one sentence
  bool needs_reclaim = false;  // reserved does not fit, allocated does: the allocator would have to give back cached memory

  PeakAt peak_allocated, peak_reserved;
  DeviceBytes device;
  double confidence = 0;                 // the probability that the job runs with device.request_bytes
  std::string request_source;            // the basis of that figure
  std::vector<std::string> job_classes;  // the classes with which the job is calibrated
  Convolutions convolutions;
  std::optional<VaryingInput> varying_input;
  std::vector<LedgerLine> ledger;
  // The smallest card on which the job still runs if PyTorch gives cached memory back: the allocator's least capacity plus the expected
  // ledger. With the run's own allocator settings, and with expandable_segments:True added.
  std::optional<int64_t> min_capacity_bytes, min_capacity_expandable_bytes;

  std::vector<CategoryLine> categories;  // at peak allocated; they add up to it exactly
  int64_t free_but_reserved_bytes = 0;   // at the same moment: reserved minus allocated
  std::vector<StepPeak> step_peaks;
  std::vector<PhasePeak> phase_peaks;
  std::optional<OomPlace> oom;
  std::optional<Growth> growth;           // memory that grows from step to step
  int64_t steps_total = 0;                // of the whole job, if the user named it; 0: not known
  std::optional<TimeRange> gpu_time;      // of a step, without the host's part
  std::optional<TimeRange> loader_batch;  // from one batch of its DataLoader to the next, ...
  int64_t loader_workers = 0;             // ... with this number of workers
  std::optional<bool> matches_recorded;   // null: the capture has nothing to compare with
  std::vector<CardFit> cards;             // if the user named no card
  std::optional<ProfileSummary> profile;  // for a profiler trace: what became of its bytes
  std::vector<Warning> warnings;
};

// Whether memory that grows runs out within the job's own number of steps.
inline bool runs_out_in_time(const Prediction& p) {
  return p.growth && p.growth->oom_step && p.steps_total > 0 && *p.growth->oom_step <= p.steps_total;
}

}  // namespace gpucast
