#include "src/kernels/handed_numbers.h"

#include <algorithm>

namespace gpucast::ptx {
namespace {

constexpr size_t kMostTimes = 64, kMostPlaces = 4096;

}  // namespace

void HandedNumbers::write(uint64_t place, uint32_t bytes, uint64_t value) {
  for (uint32_t b = 0; b < bytes && b < 8; ++b) {
    if (by_place_.size() >= kMostPlaces && !by_place_.contains(place + b)) return;
    std::vector<unsigned char>& numbers = by_place_[place + b];
    if (numbers.size() < kMostTimes) numbers.push_back(static_cast<unsigned char>(value >> (8 * b)));
  }
}

std::optional<uint64_t> HandedNumbers::read(uint64_t place, uint32_t bytes, uint32_t times) const {
  uint64_t value = 0;
  for (uint32_t b = 0; b < bytes; ++b) {
    const auto found = by_place_.find(place + b);
    if (found == by_place_.end() || b >= 8) return std::nullopt;
    value |= uint64_t{found->second[std::min<size_t>(times, found->second.size() - 1)]} << (8 * b);
  }
  return value;
}

}  // namespace gpucast::ptx
