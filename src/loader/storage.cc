#include "gpucast/storage.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "storage_json.h"

namespace gpucast {
namespace {

// "200MB/s" -> 2e8; 0: none.
double bytes_per_second(const std::string& text) {
  const char* begin = text.c_str();
  char* end = nullptr;
  const double number = std::strtod(begin, &end);
  std::string_view unit(end);
  if (unit.ends_with("/s")) unit.remove_suffix(2);
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{{"B", 1.0},
                                                                               {"KB", 1e3},
                                                                               {"MB", 1e6},
                                                                               {"GB", 1e9},
                                                                               {"M", 1e6},
                                                                               {"G", 1e9},
                                                                               {"K", 1e3},
                                                                               {"KiB", 1024.0},
                                                                               {"MiB", 1024.0 * 1024},
                                                                               {"GiB", 1024.0 * 1024 * 1024}}};
  for (const auto& [name, factor] : kUnits) {
    if (end != begin && unit == name && std::isfinite(number) && number > 0) return number * factor;
  }
  return 0;
}

}  // namespace

const std::vector<StorageTier>& storage_tiers() {
  static const std::vector<StorageTier> tiers = [] {
    std::vector<StorageTier> out;
    const Json json = Json::parse(kStorageJson);
    const Json& rows = json["tiers"];
    for (size_t i = 0; i < rows.size(); ++i) {
      const Json& row = rows.at(i);
      out.push_back({rows.keys()[i], row.value("what", ""), row.value("source", ""), row.value("stream_bytes_per_s", 0.0),
                     row.value("device_bytes_per_s", 0.0), row.value("latency_ns", 0.0)});
    }
    return out;
  }();
  return tiers;
}

StorageTier find_storage(const std::string& text) {
  std::string names;
  for (const StorageTier& tier : storage_tiers()) {
    if (tier.name == text) return tier;
    names += (names.empty() ? "" : ", ") + tier.name;
  }
  const double rate = bytes_per_second(text);
  char* end = nullptr;
  if (rate <= 0 && std::isfinite(std::strtod(text.c_str(), &end)) && end != text.c_str() && *end == '\0')
    throw Error(fmt::format("--storage: '{}' has no unit", text), "", "add a unit, as in 200MB/s, or name a kind of disk: " + names);
  if (rate <= 0)
    throw Error(fmt::format("--storage: '{}' is no kind of disk and no bandwidth", text), "",
                "name a kind of disk (" + names + ") or a bandwidth, as in 200MB/s");
  return {text, fmt::format("a disk of {}", text), "the command line", rate, rate, 0};
}

double storage_ns(const StorageTier& tier, double bytes, double files) {
  return files * tier.latency_ns + bytes / tier.stream_bytes_per_s * 1e9;
}

}  // namespace gpucast
