// Amounts of memory as text. JSON gets exact bytes; people get MiB and GiB, never "GB".
#pragma once

#include <cstdint>
#include <string>

namespace gpucast {

inline constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// "0 B", "512 B", "3.5 KiB", "8.1 MiB", "2.92 GiB".
std::string format_bytes(int64_t bytes);

// "2986.55 MiB": a column of these is easy to read and add up.
std::string format_mib(int64_t bytes);

}  // namespace gpucast
