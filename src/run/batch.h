// `gpucast batch`: many runs, each `gpucast run` as ever, most of them in Pythons that have imported PyTorch already.
#pragma once

#include <cstdint>
#include <string>

#include "src/run/batch_job.h"

namespace gpucast::run {

struct BatchOptions {
  std::string jobs;       // the file of jobs; "-": standard input
  std::string output;     // the file of results; "": standard output
  int64_t at_a_time = 0;  // 0: as many as there are processors and memory for
  bool fresh = false;     // each job in a process of its own
  Job defaults;           // of jobs that do not say
};

// Runs all jobs and writes their results as they come. Returns the exit code: docs/reference/batch.md. Throws Error when the jobs cannot
// be read or the results not be written; a job that fails is a result. Takes over signals and children of this process.
int run_batch(const BatchOptions& options);

}  // namespace gpucast::run
