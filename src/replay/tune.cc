#include "src/replay/tune.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

#include "src/base/alloc_conf.h"

namespace gpucast {
namespace {

TriedSetting try_setting(const History& history, const ReplaySettings& settings) {
  const ReplayResult result = replay(history, settings);
  TriedSetting out;
  out.alloc_conf = settings.alloc_conf;
  out.survives = result.stats.ooms == 0;
  out.peak_reserved_bytes = result.stats.peak_reserved_bytes;
  out.peak_allocated_bytes = result.stats.peak_allocated_bytes;
  out.rounding_bytes = result.rounding_at_peak_bytes;
  out.driver_calls = result.stats.segment_allocs + result.stats.segment_frees;
  out.alloc_retries = result.stats.alloc_retries;
  return out;
}

// The best on a card: no failure, then the fewest retries (each gives the whole cache back), then the fewest driver calls.
auto trouble(const TriedSetting& s) { return std::tuple(!s.survives, s.alloc_retries, s.driver_calls, s.peak_reserved_bytes); }
auto size(const TriedSetting& s) { return std::tuple(!s.survives, s.peak_reserved_bytes, s.driver_calls); }

std::optional<size_t> worth_a_change(const Tuning& tuning) {
  const TriedSetting& own = tuning.tried[tuning.own];
  if (tuning.capacity_bytes) {
    const TriedSetting& first = tuning.tried.front();
    const bool gains = first.survives && (!own.survives || first.alloc_retries < own.alloc_retries);
    return gains ? std::optional<size_t>(0) : std::nullopt;
  }
  // Among the smallest settings (equal to within a page), the one with the fewest driver calls.
  std::optional<size_t> best;
  for (size_t i = 0; i < tuning.tried.size(); ++i) {
    const TriedSetting& tried = tuning.tried[i];
    if (!tried.survives || tried.peak_reserved_bytes >= tuning.tried.front().peak_reserved_bytes + kLeastGainBytes) continue;
    if (own.survives && own.peak_reserved_bytes < tried.peak_reserved_bytes + kLeastGainBytes) continue;
    if (!best || tried.driver_calls < tuning.tried[*best].driver_calls) best = i;
  }
  return best;
}

}  // namespace

std::vector<std::string> settings_to_try(const History& history, const std::string& own_conf, bool with_capacity) {
  std::vector<std::string> out = {own_conf,
                                  "",
                                  "expandable_segments:True",
                                  "max_split_size_mb:32",
                                  "max_split_size_mb:64",
                                  "max_split_size_mb:128",
                                  "max_split_size_mb:256",
                                  "max_split_size_mb:512",
                                  "roundup_power2_divisions:2",
                                  "roundup_power2_divisions:4",
                                  "roundup_power2_divisions:8",
                                  "max_split_size_mb:128,roundup_power2_divisions:8",
                                  "expandable_segments:True,roundup_power2_divisions:8"};
  // Garbage is collected only once a memory fraction is set: by the program, or by a setting of newer releases.
  const bool sets_fraction =
      std::any_of(history.ops.begin(), history.ops.end(), [](const AllocOp& op) { return op.kind == OpKind::set_fraction; });
  if (with_capacity && sets_fraction) {
    out.insert(out.end(), {"garbage_collection_threshold:0.6", "garbage_collection_threshold:0.8",
                           "max_split_size_mb:128,garbage_collection_threshold:0.8"});
  } else if (with_capacity && parse_alloc_conf("", history.torch).torch_minor >= 10) {
    out.emplace_back("per_process_memory_fraction:0.95,garbage_collection_threshold:0.8");
  }
  std::vector<std::string> once;
  for (std::string& conf : out) {
    if (std::find(once.begin(), once.end(), conf) == once.end()) once.push_back(std::move(conf));
  }
  return once;
}

Tuning tune(const History& history, const ReplaySettings& own) {
  Tuning out;
  out.capacity_bytes = own.capacity_bytes;
  ReplaySettings settings = own;
  settings.stop_at_oom = true;
  const std::vector<std::string> confs = settings_to_try(history, own.alloc_conf, own.capacity_bytes.has_value());
  out.tried.resize(confs.size());
  // Replays are independent, so each core runs one.
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < confs.size(); i = next++) {
      ReplaySettings with = settings;
      with.alloc_conf = confs[i];
      out.tried[i] = try_setting(history, with);
    }
  };
  std::vector<std::future<void>> workers;
  const size_t cores = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, confs.size());
  for (size_t i = 1; i < cores; ++i) workers.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& worker : workers) worker.get();
  // Equal settings keep their order above, the simplest first.
  std::stable_sort(out.tried.begin(), out.tried.end(), [&](const TriedSetting& a, const TriedSetting& b) {
    return own.capacity_bytes ? trouble(a) < trouble(b) : size(a) < size(b);
  });
  for (size_t i = 0; i < out.tried.size(); ++i) {
    if (out.tried[i].alloc_conf == own.alloc_conf) out.own = i;
  }
  out.best = worth_a_change(out);
  return out;
}

}  // namespace gpucast
