// What a script's memory would be with one change, or with two: found by running it again.
#pragma once

#include <string>
#include <vector>

#include "gpucast/explain.h"
#include "src/predict/analysis.h"
#include "src/search/runs.h"

namespace gpucast::search {

// Runs the capture's command as it was, in its folder and with its allocator settings, and then with each of `what_ifs`. Where the job does
// not fit, and no single remedy makes it fit, the best ones are also tried in pairs. Fills remedies, baseline and reruns_tried of `out`.
// Throws Interrupted, and Error where the cache of runs cannot be written.
void add_remedies(const Analysis& recorded, const std::vector<std::string>& what_ifs, Runs* runs, Explanation* out);

}  // namespace gpucast::search
