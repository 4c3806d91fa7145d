#include "src/trace/snapshot_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace gpucast {
namespace {

constexpr int64_t kMostSplitBytes = int64_t{1} << 44;  // the same limit as for the bytes of a block

}  // namespace

std::string snapshot_settings(const PickleReader& reader, const StringTable& strings, PickleValue settings) {
  const auto dict = reader.items(settings, PickleContainer::dict);
  if (!dict) return "";
  std::string out, environment;
  const auto add = [&](const std::string& setting) { out += (out.empty() ? "" : ",") + setting; };
  std::vector<std::string> named = {"max_split_size_mb", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions"};
  for (size_t i = 0; i + 1 < dict->size(); i += 2) {
    const std::optional<StringId> id = reader.text((*dict)[i]);
    const PickleValue value = (*dict)[i + 1];
    const std::string_view key = id ? strings.text(*id) : std::string_view();
    const std::optional<int64_t> number = reader.integer(value);
    if (key == "PYTORCH_CUDA_ALLOC_CONF" || key == "PYTORCH_ALLOC_CONF") {
      const std::optional<StringId> conf = reader.text(value);
      if (conf && environment.empty()) environment = strings.text(*conf);
    } else if (key == "max_split_size") {
      if (number && *number > 0 && *number < kMostSplitBytes) add(fmt::format("max_split_size_mb:{}", *number >> 20));
    } else if (key == "garbage_collection_threshold") {
      const std::optional<double> threshold = reader.real(value);
      if (threshold && *threshold > 0 && *threshold < 1) add(fmt::format("garbage_collection_threshold:{}", *threshold));
    } else if (key == "expandable_segments") {
      if (reader.boolean(value).value_or(false)) add("expandable_segments:True");
    } else if (key == "roundup_power2_divisions") {
      const auto divisions = reader.items(value, PickleContainer::dict);
      std::string list;
      bool any = false;
      for (size_t j = 0; divisions && j + 1 < divisions->size() && j < 64; j += 2) {
        const std::optional<StringId> mib = reader.text((*divisions)[j]);
        const std::optional<int64_t> count = reader.integer((*divisions)[j + 1]);
        if (!mib || !count) continue;
        any = any || *count != 0;
        list += fmt::format("{}{}:{}", list.empty() ? "" : ",", strings.text(*mib), *count);
      }
      if (any) add(fmt::format("roundup_power2_divisions:[{}]", list));
    }
  }
  // Adds the environment's other settings. Commas inside brackets do not separate settings.
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= environment.size(); ++i) {
    const char c = i < environment.size() ? environment[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (i < environment.size() && (c != ',' || depth > 0)) continue;
    const std::string setting = environment.substr(begin, i - begin);
    begin = i + 1;
    const size_t name = setting.find_first_not_of(" \t");
    if (name == std::string::npos) continue;
    const std::string key = setting.substr(name, setting.find_first_of(" \t:", name) - name);
    if (std::find(named.begin(), named.end(), key) == named.end()) add(setting.substr(name));
  }
  return out;
}

}  // namespace gpucast
