#include "src/kernels/memory_request.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace gpucast::ptx {
namespace {

constexpr uint64_t kSector = 32, kBank = 4, kBanks = 32;

// The most different words of one bank.
int passes(std::array<uint64_t, 64>* words, size_t count) {
  std::sort(words->begin(), words->begin() + static_cast<std::ptrdiff_t>(count));
  const auto end = std::unique(words->begin(), words->begin() + static_cast<std::ptrdiff_t>(count));
  std::array<uint8_t, kBanks> used = {};
  int most = 0;
  for (auto word = words->begin(); word != end; ++word) most = std::max<int>(most, ++used[*word % kBanks]);
  return most;
}

// The words of some lanes.
int phase(const LaneValues& addresses, LaneMask mask, uint32_t bytes) {
  std::array<uint64_t, 64> words;
  size_t count = 0;
  bool rising = true;
  for (LaneMask left = mask; left != 0; left &= left - 1) {
    const uint64_t address = addresses[static_cast<size_t>(std::countr_zero(left))];
    const uint64_t last = (address + std::max(bytes, 1U) - 1) / kBank;
    for (uint64_t word = address / kBank; word <= last && count < words.size(); ++word) {
      rising = rising && (count == 0 || word == words[count - 1] || word == words[count - 1] + 1);
      words[count++] = word;
    }
  }
  if (count == 0) return 0;
  if (rising && words[count - 1] - words[0] < kBanks) return 1;  // neighbours: no two of one bank
  return passes(&words, count);
}

}  // namespace

int count_sectors(const LaneValues& addresses, LaneMask mask, uint32_t bytes, std::vector<ByteRange>* log) {
  if (mask == 0 || bytes == 0) return 0;
  std::array<uint64_t, kLanes> begins;
  size_t count = 0;
  bool sorted = true;
  for (LaneMask left = mask; left != 0; left &= left - 1) {
    begins[count] = addresses[static_cast<size_t>(std::countr_zero(left))];
    sorted = sorted && (count == 0 || begins[count - 1] <= begins[count]);
    ++count;
  }
  if (!sorted) std::sort(begins.begin(), begins.begin() + static_cast<std::ptrdiff_t>(count));
  int sectors = 0;
  uint64_t next = 0;  // the first sector that was not counted
  uint64_t begin = begins[0], end = begins[0];
  for (size_t i = 0; i < count; ++i) {
    const uint64_t first = begins[i] / kSector, last = (begins[i] + bytes - 1) / kSector;
    const uint64_t from = i == 0 ? first : std::max(first, next);
    if (from <= last) {
      sectors += static_cast<int>(last - from + 1);
      next = last + 1;
    }
    if (begins[i] > end) {
      log->push_back({begin, end});
      begin = begins[i];
    }
    end = std::max(end, begins[i] + bytes);
  }
  log->push_back({begin, end});
  return sectors;
}

int count_wavefronts(const LaneValues& addresses, LaneMask mask, uint32_t bytes) {
  if (bytes <= 4) return phase(addresses, mask, bytes);
  const int lanes = bytes <= 8 ? 16 : bytes <= 16 ? 8 : 4;
  int out = 0;
  for (int first = 0; first < kLanes; first += lanes) out += phase(addresses, mask & (((1U << lanes) - 1) << first), bytes);
  return out;
}

int count_matrix_wavefronts(const LaneValues& addresses, LaneMask mask, uint32_t matrices) {
  int out = 0;
  for (uint32_t m = 0; m < std::min(matrices, 4U); ++m) out += phase(addresses, mask & (0xffU << (8 * m)), 16);
  return out;
}

}  // namespace gpucast::ptx
