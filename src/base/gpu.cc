#include "gpucast/gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpucast/error.h"
#include "gpus_json.h"

namespace gpucast {
namespace {

// A row as parsed, with every spelling that names it, normalised.
struct Row {
  Gpu gpu;
  std::vector<std::string> keys;
};

// What is left of a name once case, separators and the words that everybody leaves out are gone:
// "NVIDIA GeForce RTX 4090" -> "4090", "A100-SXM4-80GB" -> "a100sxm480".
std::string normalised(const std::string& name) {
  std::string key;
  for (unsigned char c : name) {
    if (std::isalnum(c) != 0) key += static_cast<char>(std::tolower(c));
  }
  for (const char* word : {"nvidia", "tesla", "geforce", "rtx"}) {
    if (key.rfind(word, 0) == 0) key.erase(0, std::string(word).size());
  }
  // "80gb" and "80" are the same size.
  for (size_t at = key.find("gb"); at != std::string::npos; at = key.find("gb", at + 1)) {
    if (at > 0 && std::isdigit(static_cast<unsigned char>(key[at - 1])) != 0) key.erase(at, 2);
  }
  return key;
}

std::vector<Row> parse_table() {
  const auto table = nlohmann::json::parse(kGpusJson);
  const std::string limits_source = table.at("capabilities_source");
  std::vector<Row> rows;
  for (const auto& json : table.at("gpus")) {
    Gpu gpu;
    gpu.id = json.at("id");
    gpu.name = json.at("name");
    const std::string capability = json.at("compute_capability");
    const size_t dot = capability.find('.');
    gpu.compute_major = std::stoi(capability.substr(0, dot));
    gpu.compute_minor = std::stoi(capability.substr(dot + 1));
    gpu.multiprocessors = json.at("multiprocessors");
    gpu.total_memory_bytes = json.at("total_memory_bytes");
    gpu.total_memory_measured = json.at("total_memory_measured");
    gpu.l2_bytes = json.at("l2_bytes");
    gpu.memory_bus_width_bits = json.at("memory_bus_width_bits");
    gpu.memory_clock_khz = json.at("memory_clock_khz");
    gpu.clock_khz = json.at("clock_khz");
    gpu.bandwidth_bytes_per_s = json.at("bandwidth_bytes_per_s");
    const auto& limits = table.at("capabilities").at(capability);
    gpu.architecture = limits.at("architecture");
    gpu.shared_memory_per_block_bytes = limits.at("shared_memory_per_block_bytes");
    gpu.shared_memory_per_block_optin_bytes = limits.at("shared_memory_per_block_optin_bytes");
    gpu.shared_memory_per_multiprocessor_bytes = limits.at("shared_memory_per_multiprocessor_bytes");
    gpu.registers_per_multiprocessor = limits.at("registers_per_multiprocessor");
    gpu.max_threads_per_multiprocessor = limits.at("max_threads_per_multiprocessor");
    gpu.max_blocks_per_multiprocessor = limits.at("max_blocks_per_multiprocessor");
    for (const auto& [type, rate] : json.at("peak_flop_per_s").items()) gpu.peak_flop_per_s[type] = rate;
    for (const auto& source : json.at("sources")) gpu.sources.push_back(source);
    gpu.sources.push_back(limits_source);

    Row row{std::move(gpu), {}};
    row.keys = {normalised(row.gpu.id), normalised(row.gpu.name)};
    for (const auto& alias : json.at("aliases")) row.keys.push_back(normalised(alias));
    rows.push_back(std::move(row));
  }
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = parse_table();
  return table;
}

// Optimal string alignment distance: insertions, deletions, substitutions and swaps of two neighbours count one each.
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
  std::vector<std::string> begins_so;  // a family rather than a card: "a100"
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
  // "l40" begins "l40s" but is another card, so one match is a suggestion only.
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
