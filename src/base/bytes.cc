#include "src/base/bytes.h"

#include <fmt/core.h>

#include <cstdlib>

namespace gpucast {

std::string format_bytes(int64_t bytes) {
  const int64_t size = std::llabs(bytes);
  const auto value = static_cast<double>(bytes);
  if (size >= kGiB) return fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB));
  if (size >= kMiB) return fmt::format("{:.1f} MiB", value / static_cast<double>(kMiB));
  if (size >= kKiB) return fmt::format("{:.1f} KiB", value / static_cast<double>(kKiB));
  return fmt::format("{} B", bytes);
}

std::string format_mib(int64_t bytes) { return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB)); }

}  // namespace gpucast
