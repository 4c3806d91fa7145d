// DNNMem (Gao et al. 2020), as the papers of xMem and VeritasEst describe and reproduce it. A list of rules, for comparison.
#pragma once

#include <vector>

#include "src/orchestrate/rules.h"

namespace gpucast {

const std::vector<Rule>& dnnmem_rules();

}  // namespace gpucast
