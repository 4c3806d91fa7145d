#include "src/vgpu/core/pools.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "src/base/address_space.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/process.h"
#include "src/vgpu/core/regions.h"

namespace gpucast::vgpu {
namespace {

constexpr uint64_t kStepBytes = 512;
constexpr uint64_t kGrowthBytes = 32 << 20;

struct Pool {
  explicit Pool(int device_) : device(device_) {}

  int device;
  AddressSpace space{[this](uint64_t size, uint64_t) {
                       uint64_t address = 0;
                       return device_alloc_on(device, size, &address) == Status::ok ? address : 0;
                     },
                     kStepBytes, kGrowthBytes};
  uint64_t keep_bytes = 0, peak_used = 0, peak_reserved = 0;
  bool destroyed = false;

  void trim(uint64_t keep) {
    while (space.reserved_bytes() > keep) {
      const uint64_t range = space.release_empty_range();
      if (range == 0) break;
      device_free(range);
    }
  }
};

struct Pools {
  std::mutex mutex;
  std::map<uint64_t, std::unique_ptr<Pool>> pools;
  uint64_t next = 0x5e0000001000;
  std::array<uint64_t, kMostDevices> default_pools{};
  std::atomic<bool> any{false};

  uint64_t create(int device) {
    pools[next += 16] = std::make_unique<Pool>(device);
    any = true;
    return next;
  }
  Pool* find(uint64_t pool) {
    const auto found = pools.find(pool);
    return found == pools.end() ? nullptr : found->second.get();
  }
};

Pools& pools() {
  static Pools* const kPools = new Pools;  // never destroyed: used until the very end
  return *kPools;
}

using Lock = std::lock_guard<std::mutex>;

}  // namespace

uint64_t pool_default(int device) {
  touch();
  if (!is_device(device)) return 0;
  Pools& p = pools();
  const Lock lock(p.mutex);
  uint64_t& pool = p.default_pools[static_cast<size_t>(device)];
  if (pool == 0) pool = p.create(device);
  return pool;
}

uint64_t pool_create(int device) {
  touch();
  if (!is_device(device)) return 0;
  const Lock lock(pools().mutex);
  return pools().create(device);
}

Status pool_destroy(uint64_t pool) {
  Pools& p = pools();
  const Lock lock(p.mutex);
  Pool* found = p.find(pool);
  if (found == nullptr || found->destroyed || pool == p.default_pools[static_cast<size_t>(found->device)]) return Status::invalid_value;
  found->destroyed = true;
  found->trim(0);
  if (found->space.allocated_bytes() == 0) p.pools.erase(pool);
  return Status::ok;
}

Status pool_alloc(uint64_t pool, size_t size_bytes, uint64_t* address) {
  Pools& p = pools();
  const Lock lock(p.mutex);
  Pool* found = p.find(pool);
  if (found == nullptr || found->destroyed || address == nullptr) return Status::invalid_value;
  *address = found->space.allocate(size_bytes);
  if (*address == 0) {  // the card may lack room for one more range of 32 MiB
    found->trim(0);
    *address = found->space.allocate(size_bytes);
  }
  found->peak_used = std::max(found->peak_used, found->space.allocated_bytes());
  found->peak_reserved = std::max(found->peak_reserved, found->space.reserved_bytes());
  return *address == 0 ? Status::out_of_memory : Status::ok;
}

Status pool_free(uint64_t address) {
  Pools& p = pools();
  if (!p.any) return Status::invalid_value;
  const Lock lock(p.mutex);
  for (auto entry = p.pools.begin(); entry != p.pools.end(); ++entry) {
    Pool& pool = *entry->second;
    const uint64_t size = pool.space.free(address);
    if (size == 0) continue;
    forget_contents(address, size);
    if (pool.destroyed) {
      pool.trim(0);
      if (pool.space.allocated_bytes() == 0) p.pools.erase(entry);
    }
    return Status::ok;
  }
  return Status::invalid_value;
}

Status pool_use(uint64_t pool, PoolUse* use) {
  const Lock lock(pools().mutex);
  const Pool* found = pools().find(pool);
  if (found == nullptr) return Status::invalid_value;
  *use = {found->space.allocated_bytes(), found->peak_used, found->space.reserved_bytes(), found->peak_reserved};
  return Status::ok;
}

Status pool_reset_peaks(uint64_t pool, bool used, bool reserved) {
  const Lock lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr) return Status::invalid_value;
  if (used) found->peak_used = found->space.allocated_bytes();
  if (reserved) found->peak_reserved = found->space.reserved_bytes();
  return Status::ok;
}

Status pool_trim(uint64_t pool, uint64_t keep_bytes) {
  const Lock lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr) return Status::invalid_value;
  found->trim(keep_bytes);
  return Status::ok;
}

Status pool_set_threshold(uint64_t pool, uint64_t keep_bytes) {
  const Lock lock(pools().mutex);
  Pool* found = pools().find(pool);
  if (found == nullptr) return Status::invalid_value;
  found->keep_bytes = keep_bytes;
  return Status::ok;
}

Status pool_threshold(uint64_t pool, uint64_t* keep_bytes) {
  const Lock lock(pools().mutex);
  const Pool* found = pools().find(pool);
  if (found == nullptr) return Status::invalid_value;
  *keep_bytes = found->keep_bytes;
  return Status::ok;
}

void pools_synchronize() {
  if (!pools().any) return;
  const Lock lock(pools().mutex);
  for (auto& [handle, pool] : pools().pools) pool->trim(pool->keep_bytes);
}

bool pool_find(uint64_t address, Range* range) {
  if (!pools().any) return false;
  const Lock lock(pools().mutex);
  for (auto& [handle, pool] : pools().pools) {
    uint64_t start = 0, size = 0;
    if (!pool->space.find(address, &start, &size)) continue;
    *range = {start, size, pool->device};
    return true;
  }
  return false;
}

void lock_pools() { pools().mutex.lock(); }
void unlock_pools() { pools().mutex.unlock(); }

}  // namespace gpucast::vgpu
