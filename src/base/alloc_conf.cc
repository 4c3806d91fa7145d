#include "src/base/alloc_conf.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include "src/base/to_number.h"

namespace gpucast {
namespace {

bool is_power_of_two(int64_t value) { return value > 0 && std::has_single_bit(static_cast<uint64_t>(value)); }

// "2.6.0+cu124" -> 6; the newest release if it is not known.
int minor_of(std::string_view torch_version) {
  const size_t dot = torch_version.find('.');
  if (dot == std::string_view::npos) return AllocConf().torch_minor;
  const auto major = to_number<int64_t>(torch_version.substr(0, dot));
  const std::string_view rest = torch_version.substr(dot + 1);
  const auto minor = to_number<int64_t>(rest.substr(0, rest.find_first_not_of("0123456789")));
  if (!major || !minor) return AllocConf().torch_minor;
  return *major < 2 ? 0 : *major > 2 ? AllocConf().torch_minor : static_cast<int>(std::min<int64_t>(*minor, AllocConf().torch_minor));
}

std::optional<int64_t> to_mib(std::string_view text) {
  const auto mib = to_number<int64_t>(text);
  if (!mib || *mib <= 0 || *mib > std::numeric_limits<int64_t>::max() >> 20) return std::nullopt;
  return *mib << 20;
}

std::optional<bool> to_bool(std::string_view text) {
  if (text == "True") return true;
  if (text == "False") return false;
  return std::nullopt;
}

// Assigns a value that was read; false: there is none.
template <class T, class U>
bool assign(const std::optional<T>& value, U* to) {
  if (value) *to = *value;
  return value.has_value();
}

bool parse_divisions(std::string_view value, bool greater_replaces_last, std::array<int64_t, 16>* divisions) {
  if (value.empty() || value.front() != '[') {
    const auto all = to_number<int64_t>(value);
    if (!all || !is_power_of_two(*all)) return false;
    divisions->fill(*all);
    return true;
  }
  if (value.back() != ']') return false;
  bool first = true;
  size_t last = 0;
  for (std::string_view entry : split_settings(value.substr(1, value.size() - 2))) {
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos) return false;
    const auto count = to_number<int64_t>(entry.substr(colon + 1));
    if (!count || (*count != 0 && !is_power_of_two(*count))) return false;
    const std::string_view bound = entry.substr(0, colon);
    if (bound == ">") {
      std::fill(divisions->begin() + static_cast<std::ptrdiff_t>(greater_replaces_last ? last : last + 1), divisions->end(), *count);
      continue;
    }
    const auto mib = to_number<int64_t>(bound);
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

std::vector<std::string_view> split_settings(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i > begin) parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return parts;
}

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
  conf.torch_minor = minor_of(torch_version);
  bool rounding_named = false;
  std::string compact;
  for (const char c : text) {
    if (c != ' ' && c != '\t') compact += c;
  }
  for (std::string_view setting : split_settings(compact)) {
    const size_t colon = setting.find(':');
    const std::string_view key = setting.substr(0, colon);
    const std::string_view value = colon == std::string_view::npos ? "" : setting.substr(colon + 1);
    bool understood = true;
    if (key == "max_split_size_mb") {
      understood = assign(to_mib(value), &conf.max_split_size_bytes);
    } else if (key == "max_non_split_rounding_mb") {
      rounding_named = assign(to_mib(value), &conf.max_non_split_rounding_bytes);
      understood = rounding_named;
    } else if (key == "large_segment_size_mb") {
      understood = assign(to_mib(value), &conf.large_segment_bytes);
    } else if (key == "garbage_collection_threshold") {
      understood = assign(to_number<double>(value), &conf.garbage_collection_threshold);
    } else if (key == "per_process_memory_fraction") {
      understood = assign(to_number<double>(value), &conf.per_process_memory_fraction);
    } else if (key == "expandable_segments") {
      understood = assign(to_bool(value), &conf.expandable_segments);
    } else if (key == "throw_on_cudamalloc_oom") {
      understood = assign(to_bool(value), &conf.throw_on_cudamalloc_oom);
    } else if (key == "roundup_power2_divisions") {
      // Up to 2.8, ">:N" in a list also replaced the value of the last size before it.
      understood = !value.empty() && parse_divisions(value, conf.torch_minor <= 8, &conf.roundup_power2_divisions);
      if (!understood) conf.roundup_power2_divisions = {};
    } else {
      // Settings that do not affect device memory.
      constexpr std::string_view kElsewhere[] = {
          "release_lock_on_cudamalloc",    "pinned_use_cuda_host_register",  "pinned_num_register_threads",
          "pinned_use_background_threads", "pinned_reserve_segment_size_mb", "pinned_free_catch_all",
          "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb",      "graph_capture_record_stream_reuse"};
      understood =
          (key == "backend" && value == "native") || std::find(std::begin(kElsewhere), std::end(kElsewhere), key) != std::end(kElsewhere);
    }
    if (!understood) conf.unknown.emplace_back(setting);
  }
  if (!rounding_named) conf.max_non_split_rounding_bytes = conf.large_segment_bytes;
  return conf;
}

}  // namespace gpucast
