// What can be changed about a script, as its capture shows: the choices that `gpucast advise` combines.
#pragma once

#include <string>
#include <vector>

#include "gpucast/advise.h"
#include "src/predict/analysis.h"

namespace gpucast::search {

// Changes that exclude each other. Each is a what-if; the first is "", for none.
struct Axis {
  std::string name;
  std::vector<std::string> options;
};

// `allowed`: kinds of what-ifs that change the mathematics, or take long, and may be tried; the others of these go to `left_out`, and so
// does a change of an optimizer that cannot matter. `optimizer_share`: of the step's time, from 0 to 1; 1: not known.
std::vector<Axis> axes_of(const Analysis& as_it_is, int64_t samples, double optimizer_share, const std::vector<std::string>& allowed,
                          std::vector<LeftOut>* left_out);

// Throws Error for a name that is no what-if, and for one that is always tried.
void check_allowed(const std::vector<std::string>& allowed);

}  // namespace gpucast::search
