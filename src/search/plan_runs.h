// Captures plans, and times them on a machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpucast/machine.h"
#include "gpucast/predict.h"
#include "src/search/plan.h"
#include "src/search/runs.h"

namespace gpucast::search {

struct PlanRunsOptions {
  Machine machine;
  Gpu gpu;
  double cpu_speed = 1;
  std::string constants_json;
  double confidence = kDefaultConfidence;
  std::string steps;  // of each run; "": the default of `gpucast run`
};

class PlanRuns : public PlanSource {
 public:
  PlanRuns(const PlanSpace& space, PlanRunsOptions options, Runs* runs) : space_(space), options_(std::move(options)), runs_(*runs) {}
  std::vector<PlanAnswer> ask(const std::vector<PlanRequest>& requests) override;

 private:
  [[nodiscard]] RunSpec spec_of(const PlanChoice& choice, const std::vector<int64_t>& ranks) const;
  [[nodiscard]] PlanAnswer answer_of(const PlanRequest& request, const Run& run, std::vector<int64_t>* missing) const;

  const PlanSpace& space_;
  const PlanRunsOptions options_;
  Runs& runs_;
};

}  // namespace gpucast::search
