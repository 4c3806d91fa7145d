#include "src/vgpu/core/memory_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/process.h"

namespace gpucast::vgpu {
namespace {

// The file's layout, in this machine's byte order. Unused parts of the file are holes.
struct MemoryLog {
  static constexpr int64_t kMost = 65535;
  struct Change {
    uint64_t address;
    int64_t bytes;
  };
  std::atomic<int64_t> changes;  // number written so far
  std::atomic<int64_t> dropped;  // number lost when the file was full
  Change change[kMost];
};

std::atomic<MemoryLog*> g_log{nullptr};

}  // namespace

void note_memory_change(uint64_t address, int64_t change_bytes) {
  MemoryLog* const log = g_log.load(std::memory_order_relaxed);
  if (log == nullptr || forked_after_use()) return;
  const int64_t place = log->changes.load(std::memory_order_relaxed);
  if (place == MemoryLog::kMost) {
    log->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  log->change[place] = {address, change_bytes};
  log->changes.store(place + 1, std::memory_order_release);
}

}  // namespace gpucast::vgpu

int gpucast_vgpu_keep_memory_log(const char* path) {
  using namespace gpucast::vgpu;
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int problem = ftruncate(fd, sizeof(MemoryLog)) == 0 ? 0 : errno;
  void* const mapped = problem != 0 ? MAP_FAILED : mmap(nullptr, sizeof(MemoryLog), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (problem == 0 && mapped == MAP_FAILED) problem = errno;
  close(fd);
  if (problem == 0) g_log.store(static_cast<MemoryLog*>(mapped));
  return problem;
}
