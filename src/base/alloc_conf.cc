#include "src/base/alloc_conf.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

namespace gpucast {
namespace {

std::optional<int64_t> to_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Splits at `separator`, but not inside brackets.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      if (i > begin) parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return parts;
}

bool is_power_of_two(int64_t value) { return value > 0 && std::has_single_bit(static_cast<uint64_t>(value)); }

// Up to 2.8, ">:N" in a list also replaced the last size named before it.
bool greater_includes_last(std::string_view torch_version) {
  const size_t dot = torch_version.find('.');
  if (dot == std::string_view::npos) return false;
  const auto major = to_int(torch_version.substr(0, dot));
  const std::string_view rest = torch_version.substr(dot + 1);
  const auto minor = to_int(rest.substr(0, rest.find_first_not_of("0123456789")));
  return major && minor && *major == 2 && *minor <= 8;
}

bool parse_divisions(std::string_view value, bool greater_replaces_last, std::array<int64_t, 16>* divisions) {
  if (value.empty() || value.front() != '[') {
    const auto all = to_int(value);
    if (!all || !is_power_of_two(*all)) return false;
    divisions->fill(*all);
    return true;
  }
  if (value.back() != ']') return false;
  bool first = true;
  size_t last = 0;
  for (std::string_view entry : split(value.substr(1, value.size() - 2), ',')) {
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos) return false;
    const auto count = to_int(entry.substr(colon + 1));
    if (!count || (*count != 0 && !is_power_of_two(*count))) return false;
    const std::string_view bound = entry.substr(0, colon);
    if (bound == ">") {
      std::fill(divisions->begin() + static_cast<std::ptrdiff_t>(greater_replaces_last ? last : last + 1), divisions->end(), *count);
      continue;
    }
    const auto mib = to_int(bound);
    if (!mib || !is_power_of_two(*mib)) return false;
    const size_t index = std::min<size_t>(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(*mib)) - 1), divisions->size() - 1);
    if (first) std::fill(divisions->begin(), divisions->begin() + static_cast<std::ptrdiff_t>(index), *count);
    first = false;
    (*divisions)[index] = *count;
    last = index;
  }
  return true;
}

}  // namespace

int64_t AllocConf::round_size(int64_t size_bytes) const {
  if (size_bytes < kMinBlockBytes) return kMinBlockBytes;
  const auto size = static_cast<uint64_t>(size_bytes);
  const int log2 = static_cast<int>(std::bit_width(size)) - 1;
  const int64_t divisions = roundup_power2_divisions[static_cast<size_t>(std::clamp(log2 - 20, 0, 15))];
  if (divisions > 1 && size_bytes > kMinBlockBytes * divisions) {
    if (std::has_single_bit(size)) return size_bytes;
    const uint64_t step = std::bit_floor(size) >> (std::bit_width(static_cast<uint64_t>(divisions)) - 1);
    if (step == 0) return static_cast<int64_t>(std::bit_ceil(size));
    return static_cast<int64_t>((size + step - 1) / step * step);
  }
  return (size_bytes + kMinBlockBytes - 1) / kMinBlockBytes * kMinBlockBytes;
}

bool AllocConf::splits(int64_t rounded_bytes, int64_t rest_bytes, bool expandable_segment) const {
  if (rounded_bytes <= kSmallBytes || expandable_segment) return rest_bytes >= kMinBlockBytes;
  return rounded_bytes < max_split_size_bytes && rest_bytes > kSmallBytes;
}

AllocConf parse_alloc_conf(std::string_view text, std::string_view torch_version) {
  AllocConf conf;
  std::string compact;
  for (const char c : text) {
    if (c != ' ' && c != '\t') compact += c;
  }
  for (std::string_view setting : split(compact, ',')) {
    const size_t colon = setting.find(':');
    const std::string_view key = setting.substr(0, colon);
    const std::string_view value = colon == std::string_view::npos ? "" : setting.substr(colon + 1);
    bool understood = !value.empty();
    if (key == "max_split_size_mb") {
      const auto mib = to_int(value);
      understood = mib && *mib > 0 && *mib <= std::numeric_limits<int64_t>::max() >> 20;
      if (understood) conf.max_split_size_bytes = *mib << 20;
    } else if (key == "expandable_segments") {
      understood = value == "True" || value == "False";
      if (understood) conf.expandable_segments = value == "True";
    } else if (key == "roundup_power2_divisions") {
      understood = parse_divisions(value, greater_includes_last(torch_version), &conf.roundup_power2_divisions);
      if (!understood) conf.roundup_power2_divisions = {};
    }
    // Every other setting changes when memory is reserved or released, which the history records.
    if (!understood) conf.unknown.emplace_back(setting);
  }
  return conf;
}

}  // namespace gpucast
