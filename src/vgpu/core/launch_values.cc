#include "src/vgpu/core/launch_values.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace gpucast::vgpu {
namespace {

constexpr size_t kMostBytes = 64 << 20;  // in all; then the store begins anew

struct Values {
  std::mutex mutex;
  std::map<uint64_t, LaunchValuesRef> ranges;  // by address, without overlaps
  size_t size_bytes = 0;
  uint64_t last_id = 0;
  std::atomic<bool> any{false};

  void erase(uint64_t address, size_t bytes) {
    auto range = ranges.upper_bound(address);
    if (range != ranges.begin()) --range;
    while (range != ranges.end() && range->first < address + bytes) {
      const bool overlaps = range->first + range->second->bytes.size() > address;
      if (overlaps) size_bytes -= range->second->bytes.size();
      range = overlaps ? ranges.erase(range) : std::next(range);
    }
  }
};

Values& values() {
  static Values* const kValues = new Values;  // never destroyed: libraries call until the very end
  return *kValues;
}

using Lock = std::lock_guard<std::mutex>;

}  // namespace

void remember_values(uint64_t address, std::string_view bytes) {
  Values& v = values();
  const Lock lock(v.mutex);
  const auto same = v.ranges.find(address);
  if (same != v.ranges.end() && same->second->bytes == bytes) return;
  v.erase(address, bytes.size());
  if (v.size_bytes + bytes.size() > kMostBytes) v.ranges.clear(), v.size_bytes = 0;
  v.size_bytes += bytes.size();
  v.ranges[address] = std::make_shared<const LaunchValues>(LaunchValues{++v.last_id, address, std::string(bytes)});
  v.any.store(true, std::memory_order_relaxed);
}

void forget_values(uint64_t address, size_t size_bytes) {
  Values& v = values();
  if (!v.any.load(std::memory_order_relaxed)) return;
  const Lock lock(v.mutex);
  v.erase(address, size_bytes);
}

std::vector<LaunchValuesRef> values_at(std::span<const uint64_t> pointers) {
  Values& v = values();
  std::vector<LaunchValuesRef> out;
  if (!v.any.load(std::memory_order_relaxed)) return out;
  const Lock lock(v.mutex);
  for (const uint64_t pointer : pointers) {
    const auto next = v.ranges.upper_bound(pointer);
    if (next == v.ranges.begin()) continue;
    const LaunchValuesRef& range = std::prev(next)->second;
    if (pointer - range->address < range->bytes.size() && std::find(out.begin(), out.end(), range) == out.end()) out.push_back(range);
  }
  return out;
}

void lock_values() { values().mutex.lock(); }
void unlock_values() { values().mutex.unlock(); }

}  // namespace gpucast::vgpu

void gpucast_vgpu_note_values(uint64_t address, const void* bytes, uint64_t size_bytes) {
  if (bytes == nullptr) return gpucast::vgpu::forget_values(address, size_bytes);
  gpucast::vgpu::remember_values(address, {static_cast<const char*>(bytes), size_bytes});
}

uint64_t gpucast_vgpu_known_values(uint64_t address, void* to, uint64_t size_bytes) {
  const auto found = gpucast::vgpu::values_at({{address}});
  if (found.empty()) return 0;
  const std::string_view bytes = std::string_view(found[0]->bytes).substr(address - found[0]->address, size_bytes);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(to));
  return bytes.size();
}
