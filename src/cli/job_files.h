// The files of `gpucast time` about a job of several ranks: --trace and --html.
#pragma once

#include <optional>
#include <string>

#include "gpucast/step_time.h"
#include "src/run/capture_file.h"

namespace gpucast::cli {

class JobFiles {
 public:
  // "": not wanted. A `trace` that is a folder, or ends in "/", gets a file for each rank. Throws Error, before the long work: a file
  // exists (without `force`) or cannot be written.
  JobFiles(std::string trace, std::string html, bool force);

  bool wanted() const { return !trace_.empty() || !html_.empty(); }
  void write(const StepTimes& times);

 private:
  void write_rank_traces(const StepTimes& times) const;

  const std::string trace_, html_;
  const bool force_;
  bool by_rank_ = false;
  std::optional<run::CaptureFile> trace_file_, html_file_;
};

}  // namespace gpucast::cli
