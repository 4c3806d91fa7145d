// The MIG slices of a card.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "gpucast/error.h"
#include "src/base/find_name.h"
#include "src/base/gpu_variant.h"

namespace gpucast {
namespace {

// A slice's memory as its driver reports it, of the card's: a 1g.10gb slice of an A100-80GB has 9.5 GiB, 0.96 of an eighth of the card;
// slices of other sizes keep back the same share or less.
constexpr double kUsableMemory = 0.95;

// NVIDIA's MIG User Guide: the multiprocessors of slices of an A100 or A30 (14 each), and of an H100 with 132.
int slice_multiprocessors(const Gpu& gpu, const MigSize& size, bool* known) {
  *known = true;
  constexpr int kA100Slice = 14, kH100Multiprocessors = 132;
  if (gpu.compute_major == 8) return kA100Slice * size.compute;
  if (size.compute == gpu.mig_slices) return gpu.multiprocessors;
  if (gpu.compute_major == 9 && gpu.multiprocessors == kH100Multiprocessors) {
    constexpr int kOfSlice[] = {0, 16, 32, 60, 64};
    return kOfSlice[size.compute];
  }
  *known = false;
  const int parts = gpu.mig_slices + (gpu.mig_slices == 7 ? 1 : 0);
  return std::max(1, gpu.multiprocessors * size.compute / parts / 2 * 2);
}

}  // namespace

int mig_memory_units(const Gpu& gpu) { return gpu.mig_slices == 7 ? 8 : gpu.mig_slices; }

std::vector<MigSize> mig_sizes(const Gpu& gpu) {
  std::vector<MigSize> out;
  if (gpu.mig_slices == 7)
    out = {{1, 1, {0, 1, 2, 3, 4, 5, 6}, ""}, {2, 2, {0, 2, 4}, ""}, {3, 4, {0, 4}, ""}, {4, 4, {0}, ""}, {7, 8, {0}, ""}};
  if (gpu.mig_slices == 4) out = {{1, 1, {0, 1, 2, 3}, ""}, {2, 2, {0, 2}, ""}, {4, 4, {0}, ""}};
  const double gib = static_cast<double>(gpu.total_memory_bytes) / (int64_t{1} << 30);
  for (MigSize& size : out)
    size.name = fmt::format("{}g.{}gb", size.compute, std::lround(std::ceil(gib / 4) * 4 * size.memory / mig_memory_units(gpu)));
  return out;
}

Gpu mig_slice(const Gpu& gpu, const std::string& slice, const std::string& typed) {
  const std::vector<MigSize> sizes = mig_sizes(gpu);
  if (sizes.empty())
    throw Error(fmt::format("the {} has no MIG", gpu.name), typed, "`gpucast gpus --show NAME` says which slices a card has");
  const auto size = std::ranges::find(sizes, letters_and_digits(slice), [](const MigSize& s) { return letters_and_digits(s.name); });
  if (size == sizes.end()) {
    std::vector<std::string> names;
    names.reserve(sizes.size());
    for (const MigSize& one : sizes) names.push_back(one.name);
    throw Error(fmt::format("{} has no slice '{}'", gpu.id, slice), typed, fmt::format("name one of {}", fmt::join(names, ", ")));
  }
  bool known = false;
  Gpu out = gpu;
  out.multiprocessors = slice_multiprocessors(gpu, *size, &known);
  const double compute = static_cast<double>(out.multiprocessors) / gpu.multiprocessors;
  const double memory = static_cast<double>(size->memory) / mig_memory_units(gpu);
  out.id = fmt::format("{}@{}", gpu.id, size->name);
  out.name = fmt::format("{} MIG {}", gpu.name, size->name);
  if (out.constants_of.empty()) out.constants_of = gpu.id;
  out.constants_are_own = false;
  out.mig_slices = 0;
  out.total_memory_bytes = static_cast<uint64_t>(static_cast<double>(gpu.total_memory_bytes) * memory * kUsableMemory);
  out.total_memory_measured = false;
  out.l2_bytes = static_cast<uint64_t>(static_cast<double>(gpu.l2_bytes) * memory);
  out.memory_bus_width_bits = static_cast<int>(gpu.memory_bus_width_bits * memory);
  out.bandwidth_bytes_per_s *= memory;
  out.board_power_w = gpu.power_w * compute;
  for (auto& [type, flop_per_s] : out.peak_flop_per_s) flop_per_s *= compute;
  if (!known) mark_estimated("multiprocessors", &out);
  out.sources.emplace_back(
      "slice: NVIDIA's MIG User Guide; memory, bandwidth and L2 in the slice's share of the card's memory, rates in its share of the "
      "multiprocessors");
  return out;
}

}  // namespace gpucast
