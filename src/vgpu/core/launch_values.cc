#include "src/vgpu/core/launch_values.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "src/vgpu/core/hashing.h"

namespace gpucast::vgpu {
namespace {

constexpr size_t kMostBytes = 64 << 20;  // in all; then the store begins anew

struct Values {
  std::mutex mutex;
  std::map<uint64_t, LaunchValuesRef> ranges;  // by address, without overlaps
  size_t size_bytes = 0;
  std::atomic<bool> any{false};

  // Takes out the ranges that overlap this one.
  std::vector<LaunchValuesRef> take(uint64_t address, size_t bytes) {
    std::vector<LaunchValuesRef> out;
    auto range = ranges.upper_bound(address);
    if (range != ranges.begin()) --range;
    while (range != ranges.end() && range->first < address + bytes) {
      const bool overlaps = range->first + range->second->bytes.size() > address;
      if (overlaps) size_bytes -= range->second->bytes.size(), out.push_back(range->second);
      range = overlaps ? ranges.erase(range) : std::next(range);
    }
    return out;
  }

  void add(uint64_t address, std::string bytes) {
    if (size_bytes + bytes.size() > kMostBytes) ranges.clear(), size_bytes = 0;
    size_bytes += bytes.size();
    const uint64_t id = mix_hash(std::hash<std::string_view>{}(bytes), address) >> 2;  // a number of JSON
    ranges[address] = std::make_shared<const LaunchValues>(LaunchValues{id, address, std::move(bytes)});
    any.store(true, std::memory_order_relaxed);
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
  uint64_t first = address;
  std::string whole(bytes);
  for (const LaunchValuesRef& one : v.take(address, bytes.size())) {
    const uint64_t end = address + bytes.size(), one_end = one->address + one->bytes.size();
    if (one->address < address) whole.insert(0, one->bytes, 0, address - one->address), first = one->address;
    if (one_end > end) whole.append(one->bytes, end - one->address);
  }
  v.add(first, std::move(whole));
}

void forget_values(uint64_t address, size_t size_bytes) {
  Values& v = values();
  if (!v.any.load(std::memory_order_relaxed)) return;
  const Lock lock(v.mutex);
  for (const LaunchValuesRef& one : v.take(address, size_bytes)) {
    const uint64_t end = address + size_bytes, one_end = one->address + one->bytes.size();
    if (one->address < address) v.add(one->address, one->bytes.substr(0, address - one->address));
    if (one_end > end) v.add(end, one->bytes.substr(end - one->address));
  }
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
