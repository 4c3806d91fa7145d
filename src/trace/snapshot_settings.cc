#include "src/trace/snapshot_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "src/base/alloc_conf.h"

namespace gpucast {
namespace {

constexpr int64_t kMostSplitBytes = int64_t{1} << 44;  // the same limit as for the bytes of a block

}  // namespace

std::string snapshot_settings(const PickleReader& reader, const StringTable& strings, PickleValue settings) {
  const auto dict = reader.items(settings, PickleContainer::dict);
  if (!dict) return "";
  std::string out, environment;
  const auto add = [&](const std::string& setting) { out += (out.empty() ? "" : ",") + setting; };
  const std::vector<std::string_view> named = {"max_split_size_mb", "garbage_collection_threshold", "expandable_segments",
                                               "roundup_power2_divisions"};
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
  // Adds the environment's other settings.
  for (std::string_view setting : split_settings(environment)) {
    const size_t name = setting.find_first_not_of(" \t");
    if (name == std::string_view::npos) continue;
    setting.remove_prefix(name);
    const std::string_view key = setting.substr(0, setting.find_first_of(" \t:"));
    if (std::find(named.begin(), named.end(), key) == named.end()) add(std::string(setting));
  }
  return out;
}

}  // namespace gpucast
