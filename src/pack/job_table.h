// Jobs from a table: CSV with a heading, JSON lines, or what `gpucast batch` wrote. docs/reference/pack.md says what the columns are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/pack/job.h"

namespace gpucast::pack {

struct JobTable {
  std::vector<Job> jobs;
  int64_t failed_runs = 0;   // of a batch: they have no report, and are left out
  int64_t without_time = 0;  // of a batch: the report has no time of a step, and the job counts as one step of a second
};

// Plain or gzip; "-" is standard input. Read line by line: nothing is held but the jobs. Throws Error with the line of what is wrong.
JobTable read_job_table(const std::string& path);

// Throws Error: a time, a share or a number that is negative, infinite or no number, or out of all proportion.
void check_job(const Job& job, const std::string& where);

}  // namespace gpucast::pack
