#include "src/base/parse_size.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "gpucast/error.h"
#include "src/base/bytes.h"

namespace gpucast {

int64_t parse_size(const std::string& text, const std::string& option, const std::string& example) {
  const std::string where = fmt::format("{} {}", option, text);
  const std::string hint = fmt::format("write bytes, or a number with KiB, MiB or GiB: {} {}", option, example);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  if (error != std::errc() || !(number > 0)) {
    throw Error(fmt::format("'{}' is no size", text), where, hint);
  }
  std::string lower = unit;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::pair<const char*, int64_t> kUnits[] = {{"", 1},       {"b", 1},      {"kib", kKiB},
                                                        {"mib", kMiB}, {"gib", kGiB}, {"tib", 1024 * kGiB}};
  for (const auto& [name, bytes] : kUnits) {
    if (lower != name) continue;
    const double size = number * static_cast<double>(bytes);
    if (size < 1 || size > static_cast<double>(int64_t{1} << 44))
      throw Error(fmt::format("'{}' is not between 1 B and 16 TiB", text), where);
    return static_cast<int64_t>(std::llround(size));
  }
  const std::string digits = text.substr(0, static_cast<size_t>(end - text.data()));
  for (const char* prefix : {"k", "m", "g", "t"}) {
    if (lower != prefix && lower != std::string(prefix) + "b") continue;
    const std::string binary = std::string(1, static_cast<char>(std::toupper(prefix[0]))) + "iB";
    throw Error(fmt::format("'{}' can mean powers of 1000 or of 1024", unit), where,
                fmt::format("did you mean {}{}? Sizes are bytes, KiB, MiB or GiB (powers of 1024)", digits, binary));
  }
  throw Error(fmt::format("'{}' is no unit of memory", unit), where, hint);
}

}  // namespace gpucast
