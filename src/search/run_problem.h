// Why a run has no capture.
#pragma once

#include <string>

#include "src/search/run.h"

namespace gpucast::search {

// What gpucast found, and the script's own last line unless it is the same.
std::string run_problem(const Run& run);

}  // namespace gpucast::search
