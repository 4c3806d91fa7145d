#include "src/trace/read_loader.h"

#include <algorithm>
#include <cmath>

#include "src/base/json.h"

namespace gpucast {
namespace {

constexpr double kMost = 1e15;  // nanoseconds: 11 days; bytes: 1 PB
constexpr int64_t kMostWorkers = 1024;
constexpr size_t kMostEntries = 10'000;

double loader_number(const Json& object, const char* key) {
  const double value = object.value(key, 0.0);
  return std::isfinite(value) && value > 0 && value <= kMost ? value : 0;
}
int64_t whole(const Json& object, const char* key, int64_t most = static_cast<int64_t>(kMost)) {
  const double value = loader_number(object, key);
  return value <= static_cast<double>(most) ? static_cast<int64_t>(value) : 0;
}

LoaderKind kind_of(const std::string& name) {
  if (name == "dataloader") return LoaderKind::dataloader;
  if (name == "dali") return LoaderKind::dali;
  if (name == "unused") return LoaderKind::unused;
  return name == "none" ? LoaderKind::none : LoaderKind::unknown;
}

LoaderRun run_of(const Json& json) {
  LoaderRun out;
  out.workers = whole(json, "workers", kMostWorkers);
  out.batches = whole(json, "batches");
  out.start_ns = loader_number(json, "start_ns");
  out.period_ns = loader_number(json, "period_ns");
  out.fetch_ns = loader_number(json, "fetch_ns");
  out.cpu_ns = loader_number(json, "cpu_ns");
  out.main_cpu_ns = loader_number(json, "main_cpu_ns");
  out.queue_ns = loader_number(json, "queue_ns");
  out.others_cores = loader_number(json, "others_cores");
  out.batch_bytes = whole(json, "batch_bytes");
  out.mapped = json.value("mapped", false);
  if (const Json& read = json["read"]; read.is_object()) {
    out.read_known = true;
    out.read_bytes = loader_number(read, "bytes");
    out.device_bytes = loader_number(read, "device_bytes");
    out.files = loader_number(read, "files");
  }
  for (const Json& one : json["batch_ns"].values()) {
    const double ns = one.get<double>();
    if (std::isfinite(ns) && ns > 0 && ns <= kMost && out.fetches_ns.size() < kMostEntries) out.fetches_ns.push_back(ns);
  }
  const Json& stages = json["stages_ns"];
  for (size_t i = 0; stages.is_object() && i < std::min(stages.size(), kMostEntries); ++i)
    out.stages_ns.emplace_back(stages.keys()[i], loader_number(stages, stages.keys()[i].c_str()));
  return out;
}

}  // namespace

bool read_loader(std::string_view text, LoaderRecord* out) {
  const Json json = Json::parse(text);
  LoaderRecord read;
  read.kind = kind_of(json.value("kind", ""));
  if (!json.is_object() || read.kind == LoaderKind::unknown) return false;
  read.dataset = json.value("dataset", "");
  read.iterable = json.value("iterable", false);
  read.pin_memory = json.value("pin_memory", false);
  read.workers = whole(json, "workers", kMostWorkers);
  read.prefetch_factor = whole(json, "prefetch_factor", kMostWorkers);
  read.batch_size = whole(json, "batch_size");
  read.epoch_batches = whole(json, "epoch_batches");
  read.others = whole(json, "others", kMostWorkers);
  read.pin_ns = loader_number(json, "pin_ns");
  const Json& machine = json["machine"];
  read.cores = loader_number(machine, "cores");
  read.threads_per_core = std::max<int64_t>(1, whole(machine, "threads_per_core", 8));
  read.ranks = std::max<int64_t>(1, whole(machine, "ranks", kMostWorkers));
  for (const Json& one : json["next"].values()) {
    const bool integers = one.is_array() && one.size() >= 3 && one.at(0).is_integer() && one.at(1).is_integer() && one.at(2).is_integer();
    if (!integers || read.taken.size() >= kMostEntries) continue;
    TakenBatch taken{one.at(0).get<int64_t>(), one.at(1).get<int64_t>(), one.at(2).get<int64_t>()};
    const bool has_issuing = one.size() > 3 && one.at(3).is_integer();  // older captures do not
    taken.issuing_cpu_us = has_issuing ? one.at(3).get<int64_t>() : taken.cpu_us;
    const auto possible = [](int64_t us) { return us >= 0 && us <= static_cast<int64_t>(kMost); };
    // Waits must not overlap: a step's time is reduced by each wait, so overlapping time would be subtracted twice.
    const bool behind = read.taken.empty() || taken.unix_us >= read.taken.back().unix_us + read.taken.back().wall_us;
    if (taken.unix_us > 0 && taken.unix_us <= static_cast<int64_t>(4 * kMost) && possible(taken.wall_us) && possible(taken.cpu_us) &&
        possible(taken.issuing_cpu_us) && behind)
      read.taken.push_back(taken);
  }
  for (const Json& one : json["measured"].values()) {
    LoaderRun run = run_of(one);
    const bool known =
        std::any_of(read.runs.begin(), read.runs.end(), [&](const LoaderRun& other) { return other.workers == run.workers; });
    if (run.period_ns > 0 && run.batches > 0 && !known) read.runs.push_back(std::move(run));
  }
  std::sort(read.runs.begin(), read.runs.end(), [](const LoaderRun& a, const LoaderRun& b) { return a.workers < b.workers; });
  for (const Json& one : json["said"].values()) {
    if (one.is_text() && read.said.size() < 10) read.said.push_back(one.get<std::string>());
  }
  *out = std::move(read);
  return true;
}

}  // namespace gpucast
