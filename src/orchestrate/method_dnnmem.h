// DNNMem (Gao et al. 2020), as the papers of xMem and VeritasEst describe and reproduce it, as a list of rules: for comparison.
#pragma once

#include <vector>

#include "src/orchestrate/rules.h"

namespace gpucast {

const std::vector<Rule>& dnnmem_rules();

}  // namespace gpucast
