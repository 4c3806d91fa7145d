#pragma once

#include <string_view>

namespace gpucast {

// Modules (SXM) have NVLink. Cards of the same architecture for a slot communicate over PCIe. NVIDIA's names show the difference.
inline bool has_nvlink(std::string_view name) {
  if (name.find("PCIe") != name.npos) return false;
  for (const std::string_view part : {"SXM", "HBM", "H20", "H800", "B200", "B300"})
    if (name.find(part) != name.npos) return true;
  return false;
}

}  // namespace gpucast
