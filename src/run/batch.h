// `gpucast batch`: many runs, each like one `gpucast run`. Most of them start in a Python that has imported PyTorch already.
#pragma once

#include <cstdint>
#include <string>

#include "src/run/batch_job.h"

namespace gpucast::run {

struct BatchOptions {
  std::string jobs;       // the file of jobs; "-": standard input
  std::string output;     // the file of results; "": standard output
  int64_t at_a_time = 0;  // 0: the number that processors and memory allow
  bool fresh = false;     // each job in a process of its own
  Job defaults;           // for what a job does not set
};

// Runs all jobs and writes each result when its job ends. Returns the exit code: docs/reference/batch.md. Throws Error when the jobs
// cannot be read or the results cannot be written; a job that fails is a result. Takes over signals and children of this process.
int run_batch(const BatchOptions& options);

}  // namespace gpucast::run
