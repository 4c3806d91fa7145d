// The lines that a batch writes, one a job, and the lines that an earlier batch wrote.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/run/batch_job.h"

namespace gpucast::run {

struct JobEnd {
  std::string name;
  int exit_code = 2;
  double seconds = 0;
  bool forked = false;
  std::string run_json;               // output of `gpucast run --as-job`; "" or incomplete JSON: it died
  std::optional<JobProblem> problem;  // if set, used instead of the problem in run_json
  std::string printed;                // the last lines that the script printed
};

// One line, with its "\n". Its status is counted in `tally`.
struct Tally {
  int64_t fit = 0, do_not_fit = 0, failed = 0;
  int64_t job_count() const { return fit + do_not_fit + failed; }
  void count(const std::string& status);
};
std::string result_line(const JobEnd& end, Tally* tally);

// The status of each job that a results file contains. `size_bytes`: the size of its whole lines; an incomplete line after them is from a
// batch that was killed. Throws Error when the file contains anything else, because writing would spoil it.
struct FormerResults {
  std::map<std::string, std::string> status_by_name;
  int64_t size_bytes = 0;
};
FormerResults read_results(const std::string& text, const std::string& path);

// The last lines of `text`, at most `max_bytes`. Only a line longer than that is cut.
std::string last_lines(const std::string& text, size_t max_bytes);

// The last line that is not blank, without blanks around it. Lines of a progress bar end in "\r".
std::string last_line(const std::string& text);

// "12 done, 1 failed, 87 left, 1 min 10 s". `elapsed_s`: since the first of `done_now` jobs was started. `total`: known jobs.
std::string progress_text(const Tally& tally, int64_t done_now, int64_t jobs_left, double elapsed_s, bool more_to_come);

}  // namespace gpucast::run
