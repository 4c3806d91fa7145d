#include "src/step/step_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gpucast {
namespace {

constexpr double kCallNs = 2500;     // a launch costs the host this much more with NVIDIA's driver than with ours
constexpr double kLatencyNs = 4000;  // from a launch to the kernel's start on an idle GPU

}  // namespace

Schedule schedule(const StepOperations& step, const std::vector<Duration>& durations, double host_scale, std::vector<double>* starts) {
  std::vector<double> free_at(step.streams.size()), busy(step.streams.size());
  double host = 0, end = 0, end_before = 0, calls_ns = 0;
  for (int round = 0; round < 2; ++round) {
    double asked = 0;
    end_before = end;
    calls_ns = 0;
    std::fill(busy.begin(), busy.end(), 0);
    if (starts) starts->clear();
    for (const StepOperation& work : step.operations) {
      host += std::max(0.0, static_cast<double>(work.asked_ns) - asked) * host_scale;
      asked = std::max(asked, static_cast<double>(work.asked_ns));
      const double ns = durations[work.shape].expected_ns, call_ns = kCallNs * static_cast<double>(step.shapes[work.shape].launches);
      double& stream = free_at[work.stream];
      stream = std::max(stream, host + kLatencyNs) + ns;
      if (starts) starts->push_back(stream - ns - end_before);
      host += call_ns;
      calls_ns += call_ns;
      if (work.waits) host = std::max(host, stream);
      busy[work.stream] += ns;
    }
    host += std::max(0.0, static_cast<double>(step.host_ns) - asked) * host_scale;
    end = host;
    for (const double time : free_at) end = std::max(end, time);
  }
  Schedule out;
  out.step_ns = end - end_before;
  for (const double time : busy) out.gpu_ns = std::max(out.gpu_ns, time);
  out.host_ns = static_cast<double>(step.host_ns) * host_scale + calls_ns;
  return out;
}

std::vector<Duration> durations_of(const StepOperations& step, const CardRates& rates) {
  std::vector<Duration> out;
  out.reserve(step.shapes.size());
  for (const Operation& shape : step.shapes) out.push_back(operation_duration(shape, rates));
  return out;
}

}  // namespace gpucast
