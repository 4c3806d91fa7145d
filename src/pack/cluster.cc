#include "src/pack/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gpucast/error.h"
#include "src/base/gpu_variant.h"

namespace gpucast::pack {
namespace {

constexpr int64_t kMostCards = 1'000'000;

}  // namespace

std::vector<MigProfile> mig_profiles(const Gpu& gpu, const PackConstants& constants) {
  std::vector<MigProfile> out;
  for (const MigSize& size : mig_sizes(gpu)) {
    MigProfile& p = out.emplace_back(size.name, size.compute, size.memory, 0, 0, 0, size.starts);
    p.compute_share = static_cast<double>(p.compute) / gpu.mig_slices;
    p.memory_share = static_cast<double>(p.memory) / mig_memory_units(gpu);
    p.bytes = static_cast<int64_t>(static_cast<double>(gpu.total_memory_bytes) * p.memory_share * constants.mig_usable_memory);
  }
  return out;
}

Cluster parse_cluster(std::string_view text, SharingMode mode) {
  Cluster out;
  out.mode = mode;
  std::vector<int64_t> counts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string_view part = text.substr(at, end - at);
    at = end + 1;
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    int64_t count = 1;
    const char* const last = part.data() + part.size();
    if (const auto read = std::from_chars(part.data(), last, count); read.ptr != last && *read.ptr == 'x' && read.ptr != part.data()) {
      if (read.ec != std::errc() || count < 1 || count > kMostCards)
        throw Error(fmt::format("a cluster has 1 to {} cards of a type", kMostCards), std::string(part), "for example 4xp40,2xa100-80");
      part.remove_prefix(static_cast<size_t>(read.ptr + 1 - part.data()));
    } else {
      count = 1;
    }
    if (part.empty()) throw Error("a card's name is missing", std::string(text), "for example 4xp40,2xa100-80");
    const Gpu& gpu = find_gpu(std::string(part));
    if (mode == SharingMode::mig && mig_profiles(gpu).empty())
      throw Error(fmt::format("the {} has no MIG", gpu.name), std::string(text), "--mode mps or timeslice; `gpucast gpus` lists cards");
    const auto known = std::find_if(out.types.begin(), out.types.end(), [&](const Gpu& type) { return type.id == gpu.id; });
    if (known == out.types.end()) {
      out.types.push_back(gpu);
      counts.push_back(count);
    } else {
      counts[static_cast<size_t>(known - out.types.begin())] += count;
    }
  }
  for (size_t t = 0; t < out.types.size(); ++t)
    for (int64_t i = 0; i < counts[t]; ++i) out.cards.push_back({fmt::format("{}/{}", out.types[t].id, i), static_cast<uint32_t>(t)});
  if (static_cast<int64_t>(out.cards.size()) > kMostCards)
    throw Error(fmt::format("a cluster has 1 to {} cards", kMostCards), std::string(text), "pack a part of it");
  return out;
}

}  // namespace gpucast::pack
