// How a loader's rate grows with its workers: the universal scalability law (Gunther),
//
//   X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1)),
//
// lambda is the rate of one worker, sigma is for resources that workers queue for, kappa for communication between workers. A few
// measurements do not determine all three, so the result is every law that would explain the measurements, each with its weight.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "src/loader/loader_constants.h"

namespace gpucast {

struct ScalabilityPoint {
  int64_t workers = 1;
  double rate = 0;                                                // batches a second
  double noise = 0.05;                                            // standard deviation of its logarithm
  double highest_rate = std::numeric_limits<double>::infinity();  // the highest rate that the machine's cores allowed then
};

// A law, and its probability among all.
struct Scalability {
  double lambda = 0, sigma = 0, kappa = 0;
  double weight = 0;
  double rate(double workers) const;
};

// The prior distributions of sigma and kappa have the means of `constants`, which are small because workers share little. Points without a
// rate are left out; the result is empty if no point remains.
std::vector<Scalability> fit_scalability(const std::vector<ScalabilityPoint>& points, const LoaderConstants& constants);

// 90 % of the laws' weight is between low and high.
struct Rate {
  double low = 0, expected = 0, high = 0;
};
Rate rate_at(const std::vector<Scalability>& laws, double workers);

}  // namespace gpucast
