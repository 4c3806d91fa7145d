// What tests of constants files share.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>

namespace gpucast {

// A constants file with one number in one group of a section ("pack", "loader").
inline std::string file_with(const std::string& section, const std::string& group, const std::string& name, double value) {
  return fmt::format(R"({{"schema_version":1,"{}":{{"{}":{{"source":"a test","{}":{}}}}}}})", section, group, name, value);
}

template <class Constants>
bool are_equal(const Constants& a, const Constants& b) {
  static_assert(sizeof(Constants) % sizeof(double) == 0, "numbers alone, so that bytes can be compared");
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace gpucast
