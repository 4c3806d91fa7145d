// Bytes as hexadecimal digits: "2d2dff".
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace gpucast {

inline void append_hex(std::string_view bytes, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char byte : bytes) {
    *out += kDigits[static_cast<unsigned char>(byte) >> 4];
    *out += kDigits[static_cast<unsigned char>(byte) & 15];
  }
}

// Unset: an odd number of digits, or a character that is none.
inline std::optional<std::string> bytes_from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    unsigned char byte = 0;
    const char* const end = hex.data() + std::min(i + 2, hex.size());
    const auto read = std::from_chars(hex.data() + i, end, byte, 16);
    if (read.ec != std::errc() || read.ptr != hex.data() + i + 2) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace gpucast
