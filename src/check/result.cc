#include "src/check/result.h"

#include <algorithm>

#include "gpucast/error.h"

namespace gpucast::check {

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::passed:
      return "passed";
    case Outcome::broken:
      return "broken";
    case Outcome::unknown:
      return "unknown";
  }
  return "";
}

int64_t CheckResult::failed_jobs() const {
  return std::count_if(jobs.begin(), jobs.end(), [](const JobResult& job) { return job.problem.has_value(); });
}

int64_t CheckResult::limits(Outcome outcome) const {
  int64_t out = 0;
  for (const JobResult& job : jobs)
    for (const CardResult& card : job.cards)
      out += std::count_if(card.limits.begin(), card.limits.end(), [&](const LimitResult& limit) { return limit.outcome == outcome; });
  return out;
}

int CheckResult::exit_code() const {
  if (failed_jobs() > 0) return kExitFailed;
  return limits(Outcome::broken) > 0 ? kExitNo : kExitYes;
}

}  // namespace gpucast::check
