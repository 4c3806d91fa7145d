// VeritasEst (Shi and Elkhatib 2025, section III), the predecessor of xMem. A list of rules, for comparison.
#pragma once

#include <vector>

#include "src/orchestrate/rules.h"

namespace gpucast {

const std::vector<Rule>& veritasest_rules();

}  // namespace gpucast
