#include "src/kernels/memory_request.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace gpucast::ptx {
namespace {

constexpr uint64_t kSector = 32, kWord = 4, kRow = 128;  // kRow: all banks once

// The most different words of one bank. Lanes that are all aligned to 8 or 16 bytes keep their words together: such units count the same.
int phase(const LaneValues& addresses, LaneMask mask, uint32_t bytes) {
  if (mask == 0) return 0;
  uint64_t together = 0;
  for (LaneMask left = mask; left != 0; left &= left - 1) together |= addresses[static_cast<size_t>(std::countr_zero(left))];
  uint64_t unit = bytes >= 16 ? 16 : bytes >= 8 ? 8 : kWord;
  if (together % unit != 0 || bytes % unit != 0) unit = kWord;
  const uint64_t banks = kRow / unit;
  const int shift = std::countr_zero(unit);
  std::array<std::array<uint64_t, kLanes>, kRow / kWord> held;
  std::array<uint8_t, kRow / kWord> used = {};
  int most = 0;
  for (LaneMask left = mask; left != 0; left &= left - 1) {
    const uint64_t address = addresses[static_cast<size_t>(std::countr_zero(left))];
    const uint64_t last = (address + std::max(bytes, 1U) - 1) >> shift;
    for (uint64_t at = address >> shift; at <= last; ++at) {
      auto& bank = held[at % banks];
      uint8_t& count = used[at % banks];
      const auto end = bank.begin() + count;
      if (count == kLanes || std::find(bank.begin(), end, at) != end) continue;
      *end = at;
      most = std::max<int>(most, ++count);
    }
  }
  return most;
}

// Whether the lanes lie to each other as they did, and how far all have moved.
bool has_moved(const Footprint& last, const LaneValues& addresses, LaneMask mask, uint64_t* by) {
  if (mask != last.mask) return false;
  const auto first = static_cast<size_t>(std::countr_zero(mask));
  const uint64_t distance = *by = addresses[first] - last.addresses[first];
  uint64_t differs = 0;
  if (mask == ~LaneMask{0}) {
    for (size_t lane = 0; lane < kLanes; ++lane) differs |= addresses[lane] - last.addresses[lane] - distance;
    return differs == 0;
  }
  for (LaneMask left = mask; left != 0; left &= left - 1) {
    const auto lane = static_cast<size_t>(std::countr_zero(left));
    differs |= addresses[lane] - last.addresses[lane] - distance;
  }
  return differs == 0;
}

int wavefronts_of(const LaneValues& addresses, LaneMask mask, uint32_t bytes) {
  if (bytes <= 4) return phase(addresses, mask, bytes);
  const int lanes = bytes <= 8 ? 16 : bytes <= 16 ? 8 : 4;
  int out = 0;
  for (int first = 0; first < kLanes; first += lanes) out += phase(addresses, mask & (((1U << lanes) - 1) << first), bytes);
  return out;
}

int matrix_wavefronts_of(const LaneValues& addresses, LaneMask mask, uint32_t matrices) {
  int out = 0;
  for (uint32_t m = 0; m < std::min(matrices, 4U); ++m) out += phase(addresses, mask & (0xffU << (8 * m)), 16);
  return out;
}

// A move by whole words turns the banks, and no two words meet that did not.
template <class F>
int wavefronts_unless_moved(const LaneValues& addresses, LaneMask mask, Footprint* last, F count) {
  if (mask == 0) return 0;
  uint64_t by = 0;
  if (has_moved(*last, addresses, mask, &by) && by % kWord == 0) return last->count;
  last->mask = mask;
  last->addresses = addresses;
  return last->count = count();
}

void open_ranges(Footprint* last, uint64_t by, std::vector<ByteRange>* log) {
  last->extent = {last->ranges.front().begin + by, last->ranges.back().end + by};
  const bool fresh = last->open.empty();
  if (fresh) last->open = last->ranges;
  for (size_t i = 0; i < last->ranges.size(); ++i) {
    const ByteRange next = {last->ranges[i].begin + by, last->ranges[i].end + by};
    ByteRange& open = last->open[i];
    if (fresh) {
      open = next;
    } else if (next.begin <= open.end && next.end >= open.begin) {
      open = {std::min(open.begin, next.begin), std::max(open.end, next.end)};
    } else {
      log->push_back(std::exchange(open, next));
    }
  }
}

}  // namespace

void Footprint::close(std::vector<ByteRange>* log) {
  log->insert(log->end(), open.begin(), open.end());
  open.clear();
}

int count_sectors(const LaneValues& addresses, LaneMask mask, uint32_t bytes, Footprint* last, std::vector<ByteRange>* log) {
  if (mask == 0 || bytes == 0) return 0;
  uint64_t by = 0;
  if (has_moved(*last, addresses, mask, &by) && by % kSector == 0) {
    open_ranges(last, by, log);
    return last->count;
  }
  last->mask = mask;
  last->addresses = addresses;
  last->ranges.clear();
  last->close(log);
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
    const uint64_t first = begins[i] / kSector, to = (begins[i] + bytes - 1) / kSector;
    const uint64_t from = i == 0 ? first : std::max(first, next);
    if (from <= to) {
      sectors += static_cast<int>(to - from + 1);
      next = to + 1;
    }
    if (begins[i] > end) {
      last->ranges.push_back({begin, end});
      begin = begins[i];
    }
    end = std::max(end, begins[i] + bytes);
  }
  last->ranges.push_back({begin, end});
  open_ranges(last, 0, log);
  return last->count = sectors;
}

int count_wavefronts(const LaneValues& addresses, LaneMask mask, uint32_t bytes, Footprint* last) {
  return wavefronts_unless_moved(addresses, mask, last, [&] { return wavefronts_of(addresses, mask, bytes); });
}

int count_matrix_wavefronts(const LaneValues& addresses, LaneMask mask, uint32_t matrices, Footprint* last) {
  return wavefronts_unless_moved(addresses, mask, last, [&] { return matrix_wavefronts_of(addresses, mask, matrices); });
}

}  // namespace gpucast::ptx
