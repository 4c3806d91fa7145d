#include "src/vgpu/core/host_speed.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "src/vgpu/core/host_time.h"

namespace gpucast::vgpu {
namespace {

constexpr uint32_t kPlaces = 1U << 14;  // 64 KiB of places; each one names the next
constexpr uint32_t kSteps = 200;
constexpr size_t kBlocks = 32, kRounds = 24;
constexpr double kLeastShare = 0.1, kMostShare = 4;

const std::array<uint32_t, kPlaces>& chain() {
  static const auto* const kChain = [] {
    auto* out = new std::array<uint32_t, kPlaces>;
    for (uint32_t i = 0; i < kPlaces; ++i) (*out)[i] = (i * 40'503U + 12'345U) % kPlaces;  // an odd factor: each place once
    return out;
  }();
  return *kChain;
}

int64_t work_ns() {
  const auto& next = chain();
  const int64_t begin = machine_ns(CLOCK_MONOTONIC);
  volatile uint32_t place = 7;
  std::array<volatile char*, kBlocks> blocks{};
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      blocks[i] = static_cast<volatile char*>(std::malloc(16 + ((i * 37 + round * 11) & 255)));
      if (blocks[i] != nullptr) *blocks[i] = 1;
    }
    for (size_t i = 0; i < kBlocks; ++i) std::free(const_cast<char*>(blocks[(i * 7) % kBlocks]));
    for (uint32_t step = 0; step < kSteps / kRounds; ++step) place = next[place];
  }
  return machine_ns(CLOCK_MONOTONIC) - begin;
}

}  // namespace

int64_t yardstick_ns() {
  work_ns();  // fills the caches
  return work_ns();
}

void HostSpeed::add(int64_t yardstick_ns) { last_[count_++ % kKept] = yardstick_ns; }

double HostSpeed::share(int64_t reference_ns) const {
  const size_t known = std::min(count_, kKept);
  if (known == 0 || reference_ns <= 0) return 1;
  auto sorted = last_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(known / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(known));
  return std::clamp(static_cast<double>(reference_ns) / static_cast<double>(std::max<int64_t>(1, *middle)), kLeastShare, kMostShare);
}

}  // namespace gpucast::vgpu
