// What to change so that a job fits a card and is fast on it (docs/reference/advise.md). src/search/advise.h finds it; reports only print
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/prediction.h"

namespace gpucast {

// One configuration that was run.
struct AdvisedPoint {
  std::vector<std::string> what_ifs;  // none: the script as it is
  std::vector<std::string> did;       // what each of them changed
  std::string settings;               // PYTORCH_CUDA_ALLOC_CONF, replayed; "": the script's own
  int64_t peak_reserved_bytes = 0, device_expected_bytes = 0;
  Verdict verdict = Verdict::none;
  int64_t rank = 0, device = 0;           // of the job: it does not fit, or needs most; the memory is its
  double step_ns = 0, samples_per_s = 0;  // of the job; 0: not known
  double sample_ns = 0;                   // of a step: by this points are compared; the step's time if its samples are not known
  bool changes_mathematics = false;
  bool on_front = false;  // no other point needs less memory without being slower
  std::string run;        // the line that runs it
  std::string folder;     // in which the script was started
  std::string places;     // JSON: the user's lines that train; "": not recorded
};

// A change that no line of a patch makes.
struct ByHand {
  std::string what_if, why;
};

// A point as a patch of the user's files, and what is changed outside of them.
struct Patch {
  size_t point = 0;  // index in `points`
  std::string path;  // "": no line could be placed with certainty, so no file was written
  std::string folder;
  struct File {
    std::string name;
    int64_t added = 0, removed = 0;  // lines
  };
  std::vector<File> files;
  std::vector<std::string> placed;   // what-ifs
  std::vector<std::string> command;  // of the patched script
  bool other_command = false;        // than the command of the search
  std::vector<ByHand> by_hand;
};

struct LeftOut {
  std::string what, why;
};

struct Advice {
  std::vector<std::string> command;
  std::string gpu_id, gpu_name;
  int64_t gpu_total_bytes = 0;
  int64_t ranks = 1, captured = 1;   // of the job; its ranks and devices that were captured
  std::string rank_options;          // of `gpucast run`: " --world-size 8"
  std::vector<AdvisedPoint> points;  // the script as it is, then as they were run
  std::optional<size_t> best;        // the fastest that fits; unset: none does
  size_t smallest = 0;               // index of the point with the least memory
  std::vector<LeftOut> left_out;
  int64_t runs = 0, cached_runs = 0;
  std::string stopped;       // why the search ended before it was done; "": it was done
  bool has_loader = false;   // the script has a DataLoader: the times leave out whether its batches come in time
  std::string time_problem;  // why the step's time is not known; "": it is
  std::vector<Patch> patches;
};

// What the user writes for a what-if or an allocator setting: options, environment variables, lines of Python.
std::string change_to_write(const std::string& what_if, const std::string& did);
std::string settings_to_write(const std::string& settings);

std::string advice_text(const Advice& advice, bool colour);
std::string advice_json(const Advice& advice);

}  // namespace gpucast
