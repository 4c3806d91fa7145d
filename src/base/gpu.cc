#include "gpucast/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include "gpucast/error.h"
#include "gpus_json.h"
#include "src/base/find_name.h"
#include "src/base/gpu_variant.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

struct GpuTable {
  std::vector<Gpu> gpus;
  NamedTable names;
  std::map<std::string, double> spread;  // by field
};

// A name without case, separators and the words that people leave out: "NVIDIA GeForce RTX 4090" -> "4090", "A100-SXM4-80GB" ->
// "a100sxm480".
std::string normalised(const std::string& name) {
  std::string key = letters_and_digits(name);
  for (const char* word : {"nvidia", "tesla", "geforce", "rtx"}) {
    if (key.rfind(word, 0) == 0) key.erase(0, std::string(word).size());
  }
  // "80gb" and "80" mean the same size.
  for (size_t at = key.find("gb"); at != std::string::npos; at = key.find("gb", at + 1)) {
    if (at > 0 && std::isdigit(static_cast<unsigned char>(key[at - 1])) != 0) key.erase(at, 2);
  }
  return key;
}

template <class T>
void read(const Json& object, const char* key, T* value) {
  *value = object[key].get<T>();
}

void add_estimated(const std::string& field, const std::map<std::string, double>& spread, Gpu* gpu) {
  if (std::ranges::find(gpu->estimated, field) != gpu->estimated.end()) return;
  gpu->estimated.push_back(field);
  const auto found = spread.find(field);
  if (found == spread.end()) return;
  gpu->spread_low /= found->second;
  gpu->spread_high *= found->second;
}

GpuTable parse_gpus() {
  const Json table = Json::parse(kGpusJson);
  const auto limits_source = table["capabilities_source"].get<std::string>();
  GpuTable out;
  out.names.noun = "GPU";
  out.names.command = "gpucast gpus";
  const Json& spread = table["spread"];
  for (size_t i = 0; i < spread.size(); ++i)
    if (spread.at(i).is_number()) out.spread[spread.keys()[i]] = spread.at(i).get<double>();
  for (const Json& json : table["gpus"]) {
    Gpu gpu;
    read(json, "id", &gpu.id);
    read(json, "name", &gpu.name);
    const auto capability = json["compute_capability"].get<std::string>();
    const size_t dot = capability.find('.');
    gpu.compute_major = std::stoi(capability.substr(0, dot));
    gpu.compute_minor = std::stoi(capability.substr(dot + 1));
    read(json, "multiprocessors", &gpu.multiprocessors);
    read(json, "total_memory_bytes", &gpu.total_memory_bytes);
    read(json, "total_memory_measured", &gpu.total_memory_measured);
    read(json, "l2_bytes", &gpu.l2_bytes);
    read(json, "mig_slices", &gpu.mig_slices);
    read(json, "memory_bus_width_bits", &gpu.memory_bus_width_bits);
    read(json, "memory_clock_khz", &gpu.memory_clock_khz);
    read(json, "clock_khz", &gpu.clock_khz);
    read(json, "bandwidth_bytes_per_s", &gpu.bandwidth_bytes_per_s);
    read(json, "power_w", &gpu.power_w);
    const Json& limits = table["capabilities"][capability.c_str()];
    read(limits, "architecture", &gpu.architecture);
    read(limits, "shared_memory_per_block_bytes", &gpu.shared_memory_per_block_bytes);
    read(limits, "shared_memory_per_block_optin_bytes", &gpu.shared_memory_per_block_optin_bytes);
    read(limits, "shared_memory_per_multiprocessor_bytes", &gpu.shared_memory_per_multiprocessor_bytes);
    read(limits, "registers_per_multiprocessor", &gpu.registers_per_multiprocessor);
    read(limits, "max_threads_per_multiprocessor", &gpu.max_threads_per_multiprocessor);
    read(limits, "max_blocks_per_multiprocessor", &gpu.max_blocks_per_multiprocessor);
    const Json& rates = json["peak_flop_per_s"];
    for (size_t i = 0; i < rates.size(); ++i) gpu.peak_flop_per_s[rates.keys()[i]] = rates.at(i).get<double>();
    for (const Json& source : json["sources"]) gpu.sources.push_back(source.get<std::string>());
    gpu.sources.push_back(limits_source);
    for (const Json& note : json["notes"]) gpu.notes.push_back(note.get<std::string>());
    for (const Json& field : json["varies"]) add_estimated(field.get<std::string>(), out.spread, &gpu);
    if (json["l2_bytes"].is_null()) {
      const auto like = json["like"].get<std::string>();
      gpu.l2_bytes = std::ranges::find(out.gpus, like, &Gpu::id)->l2_bytes;
      gpu.sources.push_back(fmt::format("L2: not published; as {}", like));
      add_estimated("l2_bytes", out.spread, &gpu);
    }

    NamedRow row{gpu.id, {normalised(gpu.id), normalised(gpu.name)}};
    for (const Json& alias : json["aliases"]) row.keys.push_back(normalised(alias.get<std::string>()));
    out.names.rows.push_back(std::move(row));
    out.gpus.push_back(std::move(gpu));
  }
  return out;
}

const GpuTable& gpus() {
  static const GpuTable parsed = parse_gpus();
  return parsed;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// "300W" of "rtx4090@300W"; "3g.40gb" of "a100-80@3g.40gb".
Gpu variant_of(const std::string& name, size_t at) {
  const std::string base = name.substr(0, at), variant = name.substr(at + 1);
  Gpu gpu = is_gpu_file(base) ? read_gpu_file(base) : gpus().gpus[find_named_row(gpus().names, normalised(base), base)];
  double watts = 0;
  const auto [end, error] = std::from_chars(variant.data(), variant.data() + variant.size(), watts);
  const std::string_view unit(end, static_cast<size_t>(variant.data() + variant.size() - end));
  if (error == std::errc() && (unit == "W" || unit == "w") && watts > 0) return with_power_limit(gpu, watts, name);
  if (variant.find('g') != std::string::npos) return mig_slice(gpu, variant, name);
  throw Error(fmt::format("'{}' is neither a power limit nor a MIG slice", variant), name, "for example rtx4090@300W, a100-80@3g.40gb");
}

}  // namespace

const std::vector<Gpu>& gpu_table() { return gpus().gpus; }

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::optional<std::string> did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  std::optional<std::string> nearest;
  size_t nearest_distance = word.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(lower(word), lower(candidate));
    if (distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

void mark_estimated(const std::string& field, Gpu* gpu) { add_estimated(field, gpus().spread, gpu); }

const Gpu& find_gpu(const std::string& name) {
  const size_t at = name.rfind('@');
  if (!is_gpu_file(name) && at == std::string::npos) return gpu_table()[find_named_row(gpus().names, normalised(name), name)];
  // Cards that are made on demand stay, so that references to them do.
  static std::recursive_mutex mutex;  // a file may be like another such card
  static std::map<std::string, Gpu> made;
  const std::scoped_lock lock(mutex);
  if (const auto found = made.find(name); found != made.end()) return found->second;
  Gpu gpu = name.ends_with(".json") || at == std::string::npos ? read_gpu_file(name) : variant_of(name, at);
  return made.emplace(name, std::move(gpu)).first->second;
}

}  // namespace gpucast
