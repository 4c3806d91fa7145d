// What a check found. Reports compute nothing; they only print this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/diff.h"
#include "gpucast/prediction.h"
#include "src/check/config.h"
#include "src/check/figures.h"
#include "src/run/batch_job.h"

namespace gpucast::check {

// unknown: there is nothing to compare with, such as a baseline that does not have the job.
enum class Outcome : uint8_t { passed, broken, unknown };
const char* outcome_name(Outcome outcome);  // as in JSON: "passed", "broken", "unknown"

// The rank and device of the job with a figure.
struct JobRank {
  int64_t rank = 0, device = 0;
  int64_t ranks = 1;              // of the job
  bool has_more_devices = false;  // of its process
};

struct LimitResult {
  Limit limit;
  Outcome outcome = Outcome::passed;
  std::string now;            // "330.00 MiB"
  std::string most;           // "5% of 246.00 MiB"
  std::string sentence;       // says what was found, without the job, the card and the rank
  std::optional<JobRank> of;  // unset: of the whole job
};

// A module that has more bytes at the peak than in the baseline, or the same module of all layers ("blocks.*.mlp"), added up.
struct GrownModule {
  DiffRow row;
  int64_t layers = 1;
  std::string frame;  // the user's line that requested its largest block: "train.py:17 main"; "": not known
};

struct CardResult {
  std::string gpu_id;
  JobRank deciding;     // does not fit, or needs most
  CardFigures figures;  // its figures, and the job's step
  Verdict verdict = Verdict::none;
  std::vector<LimitResult> limits;
  std::optional<Diff> growth;      // from the baseline; unset: the baseline does not have the job on this card
  std::vector<GrownModule> grown;  // the largest growth first
  std::vector<std::string> notes;  // whole sentences
  std::string run_line;            // the command that shows more; "" for a capture file
  std::string time_line;           // the same of the step's time
};

struct JobResult {
  Job job;
  std::optional<run::JobProblem> problem;  // the run failed: no cards then
  std::string printed;                     // the end of the script's output, if it failed
  double seconds = 0;
  std::vector<CardResult> cards;
};

struct CheckResult {
  std::string config, baseline;  // paths
  std::string folder, root;      // of the configuration, and of its repository; absolute
  bool baseline_exists = false, baseline_written = false;
  std::vector<JobResult> jobs;
  std::vector<std::string> notes;

  int64_t failed_jobs() const;
  int64_t limits(Outcome outcome) const;
  int exit_code() const;
};

}  // namespace gpucast::check
