// Bytes as hexadecimal digits.
#pragma once

#include <string>
#include <string_view>

namespace gpucast {

// Appends the bytes to `out`. False: an odd number of digits, or a character that is none ("0" to "9", "a" to "f").
inline bool read_hex(std::string_view hex, std::string* out) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (hex.size() % 2 != 0) return false;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return false;
    out->push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

inline void append_hex(std::string_view bytes, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char byte : bytes) {
    *out += kDigits[static_cast<unsigned char>(byte) >> 4];
    *out += kDigits[static_cast<unsigned char>(byte) & 15];
  }
}

}  // namespace gpucast
