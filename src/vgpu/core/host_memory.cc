// Host memory that CUDA knows: pinned by cudaHostAlloc, or registered.
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/process.h"

namespace gpucast::vgpu {
namespace {

struct HostMemory {
  std::mutex mutex;
  std::map<uint64_t, size_t> allocated;  // start -> requested size
  std::map<uint64_t, size_t> registered;
};

HostMemory& host() {
  static HostMemory* const kHost = new HostMemory;  // never destroyed: used until the very end
  return *kHost;
}

using Lock = std::lock_guard<std::mutex>;

bool find_in(const std::map<uint64_t, size_t>& ranges, uint64_t address, Range* range) {
  auto found = ranges.upper_bound(address);
  if (found == ranges.begin()) return false;
  --found;
  if (address - found->first >= found->second) return false;
  *range = {found->first, found->second};
  return true;
}

}  // namespace

void* host_alloc(size_t size_bytes) {
  context_activate();
  if (size_bytes == 0) return nullptr;
  void* pointer = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pointer == MAP_FAILED) return nullptr;
  const Lock lock(host().mutex);
  host().allocated[reinterpret_cast<uint64_t>(pointer)] = size_bytes;
  return pointer;
}

Status host_free(void* pointer) {
  const Lock lock(host().mutex);
  const auto found = host().allocated.find(reinterpret_cast<uint64_t>(pointer));
  if (found == host().allocated.end()) return Status::invalid_value;
  munmap(pointer, found->second);
  host().allocated.erase(found);
  return Status::ok;
}

Status host_register(void* pointer, size_t size_bytes) {
  if (pointer == nullptr || size_bytes == 0) return Status::invalid_value;
  context_activate();
  const Lock lock(host().mutex);
  return host().registered.emplace(reinterpret_cast<uint64_t>(pointer), size_bytes).second ? Status::ok : Status::invalid_value;
}

Status host_unregister(void* pointer) {
  const Lock lock(host().mutex);
  return host().registered.erase(reinterpret_cast<uint64_t>(pointer)) == 1 ? Status::ok : Status::invalid_value;
}

bool find_host_range(const void* pointer, Range* range) {
  const Lock lock(host().mutex);
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  return find_in(host().allocated, address, range) || find_in(host().registered, address, range);
}

void lock_host_memory() { host().mutex.lock(); }
void unlock_host_memory() { host().mutex.unlock(); }

}  // namespace gpucast::vgpu
