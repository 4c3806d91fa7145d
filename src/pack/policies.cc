#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/pack/policy.h"

namespace gpucast::pack {

std::span<const Policy* const> policies() {
  static const Policy* const all[] = {&kSlotPolicy, &kNvmlPolicy, &kOccupancyPolicy, &kMemoryPolicy, &kGpucastPolicy};
  return all;
}

const Policy& find_policy(std::string_view name) {
  std::vector<std::string> names;
  for (const Policy* policy : policies()) {
    if (name == policy->name) return *policy;
    names.emplace_back(policy->name);
  }
  const auto meant = did_you_mean(std::string(name), names);
  throw Error("no such policy", std::string(name), meant ? "did you mean " + *meant + "?" : "slot, nvml, occupancy, memory or gpucast");
}

}  // namespace gpucast::pack
