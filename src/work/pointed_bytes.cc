#include "src/work/pointed_bytes.h"

#include <algorithm>
#include <iterator>

#include "src/base/bounded.h"

namespace gpucast {

int64_t PointedBytes::bytes(std::vector<uint64_t> pointers, double unix_us) {
  for (; next_ < events_.size() && static_cast<double>(events_[next_].time_us) <= unix_us; ++next_) {
    const AllocatorEvent& event = events_[next_];
    if (event.kind != EventKind::alloc || event.size_bytes <= 0) continue;
    const uint64_t end = event.address + static_cast<uint64_t>(event.size_bytes);
    if (end < event.address) continue;  // a damaged file
    ends_.erase(ends_.lower_bound(event.address), ends_.lower_bound(end));
    ends_[event.address] = end;
  }
  std::sort(pointers.begin(), pointers.end());
  int64_t out = 0;
  for (const uint64_t pointer : pointers) {
    const auto behind = ends_.upper_bound(pointer);
    if (behind == ends_.begin()) continue;
    const uint64_t block_end = std::prev(behind)->second;
    const auto next = std::upper_bound(pointers.begin(), pointers.end(), pointer);
    const uint64_t end = next != pointers.end() ? std::min(block_end, *next) : block_end;
    if (end > pointer) out += static_cast<int64_t>(std::min<uint64_t>(end - pointer, kMostElements - out));
  }
  return out;
}

}  // namespace gpucast
