// For tests: opcodes of plain values, to build pickles by hand.
#pragma once

#include <unistd.h>

#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpucast::pickle_text {

inline std::string number(int64_t value) {
  std::string out = "\x8a\x08";
  for (int i = 0; i < 8; ++i) out += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
  return out;
}
inline std::string text(std::string_view value) { return "\x8c" + std::string(1, static_cast<char>(value.size())) + std::string(value); }
inline std::string boolean(bool value) { return value ? "\x88" : "\x89"; }
inline std::string list(const std::vector<std::string>& items) {
  std::string out = "](";
  for (const std::string& item : items) out += item;
  return out + "e";
}
inline std::string dict(const std::vector<std::pair<std::string_view, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u";
}
inline std::string pickle(const std::string& value) { return "\x80\x04" + value + "."; }

// Writes `bytes` to a file of the test and returns its path.
inline std::string file(const std::string& folder, const std::string& bytes) {
  std::string path = folder + "pickle_text." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace gpucast::pickle_text
