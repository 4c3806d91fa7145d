#include "src/predict/least_capacity.h"

#include <future>
#include <string_view>

#include "gpucast/replay.h"
#include "src/base/alloc_conf.h"

namespace gpucast {

std::string with_expandable_segments(const std::string& alloc_conf) {
  std::string out;
  for (const std::string_view setting : split_settings(alloc_conf)) {
    if (setting.find("expandable_segments") == std::string_view::npos) out += std::string(setting) + ",";
  }
  return out + "expandable_segments:True";
}

LeastCapacity least_capacity(const History& history) {
  LeastCapacity out;
  if (history.ops.empty()) return out;
  // The two bisections are independent, and most machines have at least two cores.
  auto expandable =
      std::async(std::launch::async, [&] { return min_capacity_bytes(history, with_expandable_segments(history.alloc_conf)); });
  ReplaySettings own;
  own.alloc_conf = history.alloc_conf;
  own.addresses = AddressPolicy::recorded;
  const ReplayResult recorded = replay(history, own);
  out.replay_matches = recorded.matches_recorded.value_or(false);
  out.first_difference = recorded.first_difference;
  out.own_settings_bytes = min_capacity_bytes(history, history.alloc_conf);
  out.expandable_bytes = expandable.get();
  return out;
}

ReplaySettings settings_at(const History& history, int64_t capacity_bytes, int64_t device_total_bytes) {
  ReplaySettings settings;
  settings.alloc_conf = history.alloc_conf;
  settings.capacity_bytes = capacity_bytes;
  settings.device_total_bytes = device_total_bytes;
  settings.stop_at_oom = true;
  return settings;
}

RunsAt runs_at(const History& history, int64_t capacity_bytes, int64_t device_total_bytes) {
  if (capacity_bytes <= 0) return {};
  const ReplayResult result = replay(history, settings_at(history, capacity_bytes, device_total_bytes));
  return {!result.first_oom, result.stats.alloc_retries};
}

}  // namespace gpucast
