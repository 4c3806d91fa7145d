#include "src/breakdown/fail_above.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "gpucast/error.h"
#include "src/base/parse_size.h"

namespace gpucast {

FailAbove parse_fail_above(const std::string& text, int64_t before_bytes, const std::string& option) {
  FailAbove out;
  out.text = text;
  if (text == "0") return out;
  const std::string where = fmt::format("{} {}", option, text);
  if (!text.empty() && text.find_first_not_of("0123456789.") == std::string::npos) {
    throw Error(fmt::format("'{}' has no unit", text), where,
                fmt::format("write a size or a percentage: {} {}MiB, {} {}%", option, text, option, text));
  }
  if (!text.ends_with('%')) {
    out.bytes = parse_size(text, option, "50MiB");
    return out;
  }
  double percent = 0;
  const char* const last = text.data() + text.size() - 1;
  const auto [end, error] = std::from_chars(text.data(), last, percent);
  const bool only_blanks = std::string(end, last).find_first_not_of(' ') == std::string::npos;
  if (error != std::errc() || !only_blanks || !(percent >= 0) || percent > 1e6) {
    throw Error(fmt::format("'{}' is no percentage", text), where, fmt::format("write a number of 0 or more before the %: {} 5%", option));
  }
  out.bytes = static_cast<int64_t>(std::floor(static_cast<double>(before_bytes) * percent / 100));
  return out;
}

}  // namespace gpucast
