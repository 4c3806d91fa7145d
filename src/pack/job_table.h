// Jobs from a table: CSV with a heading, JSON lines, or the results of `gpucast batch`. docs/reference/pack.md has the columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/pack/job.h"

namespace gpucast::pack {

struct JobTable {
  std::vector<Job> jobs;
  int64_t failed_runs = 0;   // of a batch; they have no report and become no job
  int64_t without_time = 0;  // of a batch: runs whose report has no step time; their step counts as a second
};

// Plain or gzip; "-" is standard input. Read line by line: only the jobs stay in memory. Throws Error with the line that is wrong.
JobTable read_job_table(const std::string& path);

// Throws Error: a time, a share or a number is negative, infinite, not a number or absurdly large.
void check_job(const Job& job, const std::string& where);

}  // namespace gpucast::pack
