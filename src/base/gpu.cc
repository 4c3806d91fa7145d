#include "gpucast/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gpucast/error.h"
#include "gpus_json.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

// A parsed row, with all spellings of its name, normalised.
struct Row {
  Gpu gpu;
  std::vector<std::string> keys;
};

// A name without case, separators and the words that people leave out: "NVIDIA GeForce RTX 4090" -> "4090", "A100-SXM4-80GB" ->
// "a100sxm480".
std::string normalised(const std::string& name) {
  std::string key;
  for (unsigned char c : name) {
    if (std::isalnum(c) != 0) key += static_cast<char>(std::tolower(c));
  }
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

std::vector<Row> parse_table() {
  const Json table = Json::parse(kGpusJson);
  const auto limits_source = table["capabilities_source"].get<std::string>();
  std::vector<Row> rows;
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

    Row row{std::move(gpu), {}};
    row.keys = {normalised(row.gpu.id), normalised(row.gpu.name)};
    for (const Json& alias : json["aliases"]) row.keys.push_back(normalised(alias.get<std::string>()));
    rows.push_back(std::move(row));
  }
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = parse_table();
  return table;
}

// Optimal string alignment distance: insertions, deletions, substitutions and swaps of two neighbours each count one.
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

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

const std::vector<Gpu>& gpu_table() {
  static const std::vector<Gpu> table = [] {
    std::vector<Gpu> gpus;
    for (const Row& row : rows()) gpus.push_back(row.gpu);
    return gpus;
  }();
  return table;
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

const Gpu& find_gpu(const std::string& name) {
  const std::string wanted = normalised(name);
  std::vector<std::string> begins_so;  // cards whose names begin with it: "a100" is a family
  std::vector<std::string> keys;
  for (size_t i = 0; i < rows().size(); ++i) {
    const Row& row = rows()[i];
    bool begins = false;
    for (const std::string& key : row.keys) {
      if (!wanted.empty() && key == wanted) return gpu_table()[i];
      begins = begins || key.rfind(wanted, 0) == 0;
      keys.push_back(key);
    }
    if (begins) begins_so.push_back(row.gpu.id);
  }
  if (wanted.empty()) throw Error(fmt::format("no GPU is named '{}'", name), "", "gpucast gpus lists the names");
  if (begins_so.size() > 1) {
    throw Error(fmt::format("'{}' may be any of several GPUs: {}", name, fmt::join(begins_so, ", ")), "", "name one of them");
  }
  // "l40" is the begin of "l40s", which is another card. So a single match is only a suggestion.
  std::optional<std::string> near;
  if (begins_so.size() == 1) {
    near = begins_so[0];
  } else if (const auto key = did_you_mean(wanted, keys)) {
    for (const Row& row : rows()) {
      if (!near && std::find(row.keys.begin(), row.keys.end(), *key) != row.keys.end()) near = row.gpu.id;
    }
  }
  const std::string hint = near ? fmt::format("did you mean '{}'? gpucast gpus lists all names", *near) : "gpucast gpus lists the names";
  throw Error(fmt::format("no GPU is named '{}'", name), "", hint);
}

}  // namespace gpucast
