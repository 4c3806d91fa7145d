// Device memory: the allocations, their addresses, and the card's free memory.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "src/base/address_space.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/functions.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/memory_log.h"
#include "src/vgpu/core/pools.h"
#include "src/vgpu/core/process.h"
#include "src/vgpu/core/regions.h"

namespace gpucast::vgpu {
namespace {

constexpr uint64_t kMappingStepBytes = 2 << 20;
constexpr uint64_t kDriverRangeBytes = 32 << 20;
constexpr uint64_t kSmallStepBytes = 512;
constexpr uint64_t kSmallBytes = 1 << 20;  // smaller requests share 2 MiB steps
constexpr uint64_t kAbsurdBytes = uint64_t{1} << 50;
#ifdef __SANITIZE_THREAD__
// ThreadSanitizer leaves programs few addresses.
constexpr uint64_t kRegionBytes = uint64_t{1} << 36;
constexpr uint64_t kTopAddress = 0x7f0000000000;
#else
constexpr uint64_t kRegionBytes = uint64_t{1} << 40;
constexpr uint64_t kTopAddress = 0x700000000000;  // below the addresses of programs on x86-64 Linux; other addresses work too
#endif
constexpr uint64_t kAscendingSegments = 0x200000000000, kAscendingReservations = 0x300000000000;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

// Address ranges without access, reserved from the kernel, each below the last one. Pages without access cost nothing.
class Regions {
 public:
  uint64_t take_addresses(uint64_t size, uint64_t alignment) {
    uint64_t start = next_ - floor_ < size ? 0 : (next_ - size) / alignment * alignment;
    if (start == 0 || start < floor_) {
      if (!extend(size + alignment)) return 0;
      start = (next_ - size) / alignment * alignment;
    }
    next_ = start;
    return start;
  }

 private:
  bool extend(uint64_t at_least) {
    // Tries smaller sizes if the machine limits addresses (ulimit -v).
    for (uint64_t size = std::max(kRegionBytes, round_up(at_least, kMappingStepBytes)); size >= at_least; size /= 8) {
      const uint64_t wish = (floor_ == 0 ? kTopAddress : floor_) - size;
      void* got =
          mmap(reinterpret_cast<void*>(wish), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
      if (got == MAP_FAILED) got = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (got == MAP_FAILED) continue;
      floor_ = reinterpret_cast<uint64_t>(got);
      next_ = floor_ + size;
      add_device_region(floor_, size);
      return true;
    }
    return false;
  }

  uint64_t floor_ = 0, next_ = 0;
};

// The same upwards from a given address, for profile().ascending_addresses. Freed addresses may be used again.
class AscendingRegions {
 public:
  AscendingRegions(uint64_t start, uint64_t limit) : start_(start), end_(start), limit_(limit) {}
  // Returns `place`, the end of the used addresses (0: nothing is used).
  uint64_t take_addresses(uint64_t size, uint64_t place) {
    if (place == 0) place = start_;
    if (end_ - place < size && !extend(size - (end_ - place))) return 0;
    return place;
  }

 private:
  bool extend(uint64_t at_least) {
    const uint64_t size = round_up(at_least, kRegionBytes);
    if (limit_ - end_ < size) return false;
    void* got =
        mmap(reinterpret_cast<void*>(end_), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != reinterpret_cast<void*>(end_)) return false;
    add_device_region(end_, size);
    end_ += size;
    return true;
  }

  uint64_t start_, end_, limit_;
};

struct Physical {
  uint64_t size_bytes;
  int device;
  int mappings = 0;
  bool released = false;
  bool elsewhere = false;  // another process made it, on a card of its own
};

struct Mapping {
  uint64_t size_bytes;
  uint64_t handle;
};

gpucast_vgpu_devices_used g_used{};

// The memory of one device.
struct Card {
  int number;
  AddressSpace device, small;
  std::set<uint64_t> small_steps;  // steps of `device` that `small` divides
  uint64_t taken = 0, peak = 0;    // in steps of 2 MiB; includes the libraries' own memory

  Card(int number_, const AddressSpace::Reserve& reserve, uint64_t range_bytes, AddressSpace::Placement placement)
      : number(number_),
        device(reserve, kMappingStepBytes, range_bytes, placement),
        small([this](uint64_t size, uint64_t) { return small_step(size); }, kSmallStepBytes, kMappingStepBytes) {}

  bool fits(uint64_t size) const {
    if (size > kAbsurdBytes) return false;
    return !profile().enforce_capacity || (size <= profile().capacity_bytes && taken <= profile().capacity_bytes - size);
  }
  void count_allocated(uint64_t size) {
    if (peak == 0) {
      g_used.device[g_used.count] = number;
      std::atomic_ref(g_used.count).store(g_used.count + 1, std::memory_order_release);
    }
    taken += size;
    peak = std::max(peak, taken);
  }
  uint64_t small_step(uint64_t size) {
    if (!fits(size)) return 0;
    const uint64_t address = device.allocate(size);
    if (address == 0) return 0;
    count_allocated(size);
    small_steps.insert(address);
    return address;
  }
};

struct Memory {
  std::mutex mutex;
  std::atomic<bool> any_elsewhere{false};  // memory of another process was mapped
  Regions regions;
  AscendingRegions ascending_segments{kAscendingSegments, kAscendingReservations};
  AscendingRegions ascending_reservations{kAscendingReservations, kTopAddress};
  const bool ascending = profile().ascending_addresses != 0;
  const AddressSpace::Placement placement = ascending ? AddressSpace::Placement::above_all : AddressSpace::Placement::lowest_place;
  std::array<std::unique_ptr<Card>, kMostDevices> cards;  // by device, created at first use
  // Addresses belong to the process, not to a device.
  AddressSpace reservations{[this](uint64_t size, uint64_t) {
                              return ascending ? ascending_reservations.take_addresses(size, reservations.end())
                                               : regions.take_addresses(size, kMappingStepBytes);
                            },
                            kMappingStepBytes, kMappingStepBytes, placement};
  AddressSpace modules{[this](uint64_t size, uint64_t) { return regions.take_addresses(size, kMappingStepBytes); }, kSmallStepBytes,
                       kMappingStepBytes};            // not counted as device memory
  std::map<uint64_t, uint64_t> aligned_reservations;  // returned address -> the reservation's start
  std::map<uint64_t, Physical> physical;
  std::map<uint64_t, Mapping> mappings;
  uint64_t next_physical = 1;

  Card& card(int device) {
    std::unique_ptr<Card>& found = cards[static_cast<size_t>(device)];
    if (found == nullptr) {
      const auto reserve = [this](uint64_t size, uint64_t alignment) {
        if (!ascending) return regions.take_addresses(size, alignment);
        uint64_t end = 0;  // the end of the used addresses on all devices
        for (const auto& other : cards)
          if (other != nullptr) end = std::max(end, other->device.end());
        return ascending_segments.take_addresses(size, end);
      };
      found = std::make_unique<Card>(device, reserve, ascending ? kMappingStepBytes : kDriverRangeBytes, placement);
    }
    return *found;
  }
};

Memory& memory() {
  static Memory* const kMemory = new Memory;  // never destroyed: used until the very end
  return *kMemory;
}

using Lock = std::lock_guard<std::mutex>;

void log_change(const char* what, int device, uint64_t address, uint64_t size) {
  // Smaller allocations share a step that the virtual GPU took itself. They are not noted.
  if (size >= kMappingStepBytes && device == g_used.device[0])
    note_memory_change(address, std::string_view(what) == "device_free" ? -static_cast<int64_t>(size) : static_cast<int64_t>(size));
  log_line_of(device, "[\"" + std::string(what) + "\"," + std::to_string(address) + "," + std::to_string(size) + "]");
}

}  // namespace

Status device_alloc(size_t size_bytes, uint64_t* address) { return device_alloc_on(current_device(), size_bytes, address); }

Status device_alloc_on(int device, size_t size_bytes, uint64_t* address) {
  if (address == nullptr || !is_device(device)) return Status::invalid_value;
  context_activate();
  Memory& m = memory();
  const Lock lock(m.mutex);
  *address = 0;
  if (size_bytes == 0) return Status::ok;
  Card& card = m.card(device);
  if (size_bytes < kSmallBytes) {
    *address = card.small.allocate(size_bytes);
    if (*address != 0) log_change("device_alloc", device, *address, round_up(size_bytes, kSmallStepBytes));
  } else if (card.fits(size_bytes) && card.fits(round_up(size_bytes, kMappingStepBytes))) {
    const uint64_t size = round_up(size_bytes, kMappingStepBytes);
    *address = card.device.allocate(size);
    if (*address != 0) {
      card.count_allocated(size);
      log_change("device_alloc", device, *address, size);
    }
  }
  return *address == 0 ? Status::out_of_memory : Status::ok;
}

Status device_free(uint64_t address) {
  if (address == 0) return Status::ok;
  Memory& m = memory();
  const Lock lock(m.mutex);
  for (const auto& card : m.cards) {
    if (card == nullptr) continue;
    uint64_t size = card->small.free(address);
    if (size == 0 && !card->small_steps.contains(address)) {
      size = card->device.free(address);
      card->taken -= size;
    }
    if (size == 0) continue;
    forget_contents(address, size);
    log_change("device_free", card->number, address, size);
    return Status::ok;
  }
  return Status::invalid_value;
}

Status address_reserve(size_t size_bytes, size_t alignment_bytes, uint64_t* address) {
  if (address == nullptr || size_bytes == 0 || size_bytes % kMappingStepBytes != 0 || (alignment_bytes & (alignment_bytes - 1)) != 0)
    return Status::invalid_value;
  context_activate();
  Memory& m = memory();
  const Lock lock(m.mutex);
  const bool aligned = alignment_bytes <= kMappingStepBytes;
  if (size_bytes > kAbsurdBytes || alignment_bytes > kAbsurdBytes) return Status::out_of_memory;
  const uint64_t start = m.reservations.allocate(aligned ? size_bytes : size_bytes + alignment_bytes);
  if (start == 0) return Status::out_of_memory;
  *address = aligned ? start : round_up(start, alignment_bytes);
  m.aligned_reservations[*address] = start;
  return Status::ok;
}

Status address_release(uint64_t address, size_t size_bytes) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  const auto found = m.aligned_reservations.find(address);
  if (found == m.aligned_reservations.end()) return Status::invalid_value;
  const auto mapped = m.mappings.lower_bound(address);
  if (mapped != m.mappings.end() && mapped->first < address + size_bytes) return Status::invalid_value;
  m.reservations.free(found->second);
  m.aligned_reservations.erase(found);
  return Status::ok;
}

Status physical_create(int device, size_t size_bytes, uint64_t* handle) {
  if (handle == nullptr || !is_device(device) || size_bytes == 0 || size_bytes % kMappingStepBytes != 0) return Status::invalid_value;
  context_activate();
  Memory& m = memory();
  const Lock lock(m.mutex);
  Card& card = m.card(device);
  if (!card.fits(size_bytes)) return Status::out_of_memory;
  card.count_allocated(size_bytes);
  *handle = m.next_physical++;
  m.physical[*handle] = {size_bytes, device};
  return Status::ok;
}

Status physical_import(int device, size_t size_bytes, uint64_t* handle) {
  if (handle == nullptr || !is_device(device) || size_bytes == 0 || size_bytes % kMappingStepBytes != 0) return Status::invalid_value;
  Memory& m = memory();
  const Lock lock(m.mutex);
  *handle = m.next_physical++;
  m.physical[*handle] = {size_bytes, device, 0, false, true};
  m.any_elsewhere = true;
  return Status::ok;
}

bool is_of_another_process(uint64_t address) {
  Memory& m = memory();
  if (!m.any_elsewhere.load(std::memory_order_relaxed)) return false;
  const Lock lock(m.mutex);
  const auto next = m.mappings.upper_bound(address);
  if (next == m.mappings.begin()) return false;
  const auto& [start, mapping] = *std::prev(next);
  return address < start + mapping.size_bytes && m.physical.at(mapping.handle).elsewhere;
}

size_t physical_size_of(uint64_t handle) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  const auto found = m.physical.find(handle);
  return found == m.physical.end() ? 0 : found->second.size_bytes;
}

namespace {

void release_if_unused(Memory& m, std::map<uint64_t, Physical>::iterator physical) {
  if (!physical->second.released || physical->second.mappings > 0) return;
  if (!physical->second.elsewhere) m.card(physical->second.device).taken -= physical->second.size_bytes;
  m.physical.erase(physical);
}

}  // namespace

Status physical_release(uint64_t handle) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  const auto found = m.physical.find(handle);
  if (found == m.physical.end() || found->second.released) return Status::invalid_value;
  found->second.released = true;
  release_if_unused(m, found);
  return Status::ok;
}

int physical_device_of(uint64_t handle) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  const auto found = m.physical.find(handle);
  return found == m.physical.end() ? -1 : found->second.device;
}

Status physical_map(uint64_t address, size_t size_bytes, uint64_t handle) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  const auto found = m.physical.find(handle);
  uint64_t start = 0, reserved = 0;
  if (found == m.physical.end() || size_bytes == 0 || size_bytes > found->second.size_bytes) return Status::invalid_value;
  if (address % kMappingStepBytes != 0 || !m.reservations.find(address, &start, &reserved) || address + size_bytes > start + reserved)
    return Status::invalid_value;
  const auto next = m.mappings.lower_bound(address);
  if (next != m.mappings.end() && next->first < address + size_bytes) return Status::invalid_value;
  if (next != m.mappings.begin() && std::prev(next)->first + std::prev(next)->second.size_bytes > address) return Status::invalid_value;
  m.mappings[address] = {size_bytes, handle};
  ++found->second.mappings;
  if (!found->second.elsewhere) log_change("device_alloc", found->second.device, address, size_bytes);
  return Status::ok;
}

Status physical_unmap(uint64_t address, size_t size_bytes) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  auto mapping = m.mappings.find(address);
  if (mapping == m.mappings.end()) return Status::invalid_value;
  // One call may unmap several neighbours, but only whole mappings.
  uint64_t end = address;
  for (auto next = mapping; next != m.mappings.end() && next->first == end && end < address + size_bytes; ++next)
    end += next->second.size_bytes;
  if (end != address + size_bytes) return Status::invalid_value;
  while (mapping != m.mappings.end() && mapping->first < end) {
    const auto physical = m.physical.find(mapping->second.handle);  // exists while it is mapped
    if (!physical->second.elsewhere) log_change("device_free", physical->second.device, mapping->first, mapping->second.size_bytes);
    --physical->second.mappings;
    release_if_unused(m, physical);
    mapping = m.mappings.erase(mapping);
  }
  forget_contents(address, size_bytes);
  return Status::ok;
}

MemoryInfo memory_info() { return memory_info(current_device()); }

MemoryInfo memory_info(int device) {
  const DeviceProfile& p = profile();
  Memory& m = memory();
  const Lock lock(m.mutex);
  const Card* const card = is_device(device) ? m.cards[static_cast<size_t>(device)].get() : nullptr;
  if (card == nullptr) return {p.total_memory_bytes, p.capacity_bytes, 0, 0};
  return {p.total_memory_bytes, p.capacity_bytes > card->taken ? p.capacity_bytes - card->taken : 0, card->taken, card->peak};
}

bool find_device_range(uint64_t address, Range* range) {
  if (!in_device_region(address)) return false;
  if (pool_find(address, range)) return true;
  Memory& m = memory();
  const Lock lock(m.mutex);
  uint64_t start = 0, size = 0;
  if (m.modules.find(address, &start, &size)) {
    *range = {start, size, current_device()};  // a variable is on every device
    return true;
  }
  for (const auto& card : m.cards) {
    if (card == nullptr) continue;
    if (!card->small.find(address, &start, &size) && (!card->device.find(address, &start, &size) || card->small_steps.contains(start)))
      continue;
    *range = {start, size, card->number};
    return true;
  }
  auto mapping = m.mappings.upper_bound(address);
  if (mapping == m.mappings.begin()) return false;
  --mapping;
  if (address - mapping->first >= mapping->second.size_bytes) return false;
  *range = {mapping->first, mapping->second.size_bytes, m.physical.at(mapping->second.handle).device};
  return true;
}

Status library_memory(const char* library, const char* what, int64_t size_bytes) {
  if (library == nullptr || what == nullptr) return Status::invalid_value;
  profile();
  Memory& m = memory();
  const Lock lock(m.mutex);
  Card& card = m.card(current_device());
  if (size_bytes >= 0) {
    const uint64_t size = static_cast<uint64_t>(size_bytes);
    if (!card.fits(size)) return Status::out_of_memory;
    card.count_allocated(size);
  } else {  // returned memory
    const uint64_t size = static_cast<uint64_t>(-(size_bytes + 1)) + 1;
    card.taken -= std::min(size, card.taken);
  }
  std::string line = "[\"library_memory\",";
  append_json_string(line, library);
  line += ',';
  append_json_string(line, what);
  log_line(line + ',' + std::to_string(size_bytes) + ']');
  return Status::ok;
}

uint64_t module_memory(size_t size_bytes) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  return m.modules.allocate(size_bytes == 0 ? 1 : size_bytes);
}

void module_memory_free(uint64_t address) {
  Memory& m = memory();
  const Lock lock(m.mutex);
  const uint64_t size = m.modules.free(address);
  if (size != 0) forget_contents(address, size);
}

void lock_memory() { memory().mutex.lock(); }
void unlock_memory() { memory().mutex.unlock(); }

}  // namespace gpucast::vgpu

const gpucast_vgpu_devices_used* gpucast_vgpu_used_devices() { return &gpucast::vgpu::g_used; }
