#include "src/pack/sharing_mode.h"

#include <string>

#include "gpucast/error.h"
#include "gpucast/gpu.h"

namespace gpucast::pack {

const char* sharing_mode_name(SharingMode mode) {
  switch (mode) {
    case SharingMode::timeslice:
      return "timeslice";
    case SharingMode::mps:
      return "mps";
    case SharingMode::mps_limits:
      return "mps-limits";
    case SharingMode::mig:
      return "mig";
    case SharingMode::count_:
      break;
  }
  return "";
}

SharingMode find_sharing_mode(std::string_view name) {
  std::vector<std::string> all;
  for (int m = 0; m < static_cast<int>(SharingMode::count_); ++m) {
    const auto mode = static_cast<SharingMode>(m);
    if (name == sharing_mode_name(mode)) return mode;
    all.emplace_back(sharing_mode_name(mode));
  }
  const auto meant = did_you_mean(std::string(name), all);
  throw Error("no such sharing mode", std::string(name), meant ? "did you mean " + *meant + "?" : "timeslice, mps, mps-limits or mig");
}

}  // namespace gpucast::pack
