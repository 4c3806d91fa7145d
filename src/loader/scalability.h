// How a loader's rate grows with its workers: the universal scalability law (Gunther),
//
//   X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1)),
//
// lambda the rate of one worker, sigma what they queue for, kappa what they have to tell each other. A few measurements do not tell
// the three apart, so the answer is all laws that would explain them, each with its weight.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "src/loader/loader_constants.h"

namespace gpucast {

struct ScalabilityPoint {
  int64_t workers = 1;
  double rate = 0;                                        // batches a second
  double noise = 0.05;                                    // standard deviation of its logarithm
  double most = std::numeric_limits<double>::infinity();  // what the machine's cores allowed at that moment
};

// A law, and how likely it is among all.
struct Scalability {
  double lambda = 0, sigma = 0, kappa = 0;
  double weight = 0;
  double rate(double workers) const;
};

// Before anything is measured sigma and kappa are those of `constants`, more or less: workers share little. Points of no rate are left out;
// empty where none is left.
std::vector<Scalability> fit_scalability(const std::vector<ScalabilityPoint>& points, const LoaderConstants& constants);

// 9 of 10 lie between low and high.
struct Rate {
  double low = 0, expected = 0, high = 0;
};
Rate rate_at(const std::vector<Scalability>& laws, double workers);

}  // namespace gpucast
