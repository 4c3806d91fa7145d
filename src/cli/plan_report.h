// A plan as text and as JSON. docs/reference/plan.md is the contract.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpucast/gpu.h"
#include "gpucast/machine.h"
#include "src/search/plan.h"
#include "src/search/prices.h"

namespace gpucast::cli {

struct PlanReport {
  search::PlanSpace space;
  search::PlanGoal goal;
  search::PlanSearch found;
  Machine machine;
  Gpu gpu;
  std::optional<search::Offer> offer;  // unset: no prices
  size_t most_plans = 10;              // in the text
};

std::string plan_text(const PlanReport& report, bool colour);
std::string plan_json(const PlanReport& report);

// Whether a plan fits and, if there is a deadline, makes it.
bool has_answer(const search::PlanSearch& found);

}  // namespace gpucast::cli
