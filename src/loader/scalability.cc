#include "src/loader/scalability.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpucast {
namespace {

// 0, and values whose logarithms are evenly spaced.
std::vector<double> log_spaced(double least, double most, int count) {
  std::vector<double> out = {0};
  for (int i = 0; i < count; ++i) out.push_back(least * std::pow(most / least, static_cast<double>(i) / (count - 1)));
  return out;
}

// The share of an exponential distribution that each value represents: from the middle to the value before to the middle to the next one.
std::vector<double> exponential_shares(const std::vector<double>& values, double mean) {
  std::vector<double> out;
  double low = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double high = i + 1 < values.size() ? (values[i] + values[i + 1]) / 2 : INFINITY;
    out.push_back(std::exp(-low / mean) - std::exp(-high / mean));
    low = high;
  }
  return out;
}

double square(double value) { return value * value; }

}  // namespace

double Scalability::rate(double workers) const { return lambda * workers / (1 + sigma * (workers - 1) + kappa * workers * (workers - 1)); }

std::vector<Scalability> fit_scalability(const std::vector<ScalabilityPoint>& all, const LoaderConstants& constants) {
  std::vector<ScalabilityPoint> points;
  double low = INFINITY, high = 0;
  for (ScalabilityPoint point : all) {
    if (!(point.rate > 0) || !std::isfinite(point.rate) || point.workers < 1) continue;
    point.noise = std::max(point.noise, constants.least_rate_noise);
    points.push_back(point);
    const double alone = point.rate / static_cast<double>(point.workers);
    low = std::min(low, alone * std::exp(-4 * point.noise));
    // One worker alone may be faster than each of several that the cores or the law slow down.
    high = std::max(high, alone * std::exp(4 * point.noise) * (point.workers > 1 ? 1.5 : 1));
  }
  std::vector<Scalability> out;
  if (points.empty()) return out;
  const std::vector<double> sigmas = log_spaced(0.002, 0.6, 24), kappas = log_spaced(0.0001, 0.05, 12);
  const std::vector<double> sigma_shares = exponential_shares(sigmas, constants.sigma),
                            kappa_shares = exponential_shares(kappas, constants.kappa);
  constexpr int kLambdas = 80;
  double total = 0;
  for (int step = 0; step < kLambdas; ++step) {
    const double lambda = low * std::pow(high / low, static_cast<double>(step) / (kLambdas - 1));
    for (size_t s = 0; s < sigmas.size(); ++s) {
      for (size_t k = 0; k < kappas.size(); ++k) {
        Scalability law{lambda, sigmas[s], kappas[k], sigma_shares[s] * kappa_shares[k]};
        double misfit = 0;
        for (const ScalabilityPoint& point : points) {
          const double rate = std::min(law.rate(static_cast<double>(point.workers)), point.highest_rate);
          misfit += square(std::log(point.rate / rate) / point.noise);
        }
        law.weight *= std::exp(-misfit / 2);
        total += law.weight;
        out.push_back(law);
      }
    }
  }
  if (!(total > 0)) return {};
  std::erase_if(out, [&](const Scalability& law) { return law.weight < 1e-6 * total; });
  total = 0;
  for (const Scalability& law : out) total += law.weight;
  for (Scalability& law : out) law.weight /= total;
  return out;
}

Rate rate_at(const std::vector<Scalability>& laws, double workers) {
  std::vector<std::pair<double, double>> rates;
  rates.reserve(laws.size());
  for (const Scalability& law : laws) rates.emplace_back(law.rate(workers), law.weight);
  std::sort(rates.begin(), rates.end());
  Rate out;
  double below = 0;
  for (const auto& [rate, weight] : rates) {
    if (below < 0.05) out.low = rate;
    if (below < 0.5) out.expected = rate;
    if (below < 0.95) out.high = rate;
    below += weight;
  }
  return out;
}

}  // namespace gpucast
