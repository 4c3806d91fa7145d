// Splits options that are several words with commas between them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace gpucast {

// "a,b," gives "a", "b" and "".
inline std::vector<std::string> comma_words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace gpucast
