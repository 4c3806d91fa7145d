#include "src/vgpu/core/process.h"

#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <mutex>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/profile.h"

namespace gpucast::vgpu {
namespace {

std::atomic<bool> g_process_used{false};
std::atomic<bool> g_forked_after_use{false};
std::array<std::atomic<bool>, kMostDevices> g_contexts{};  // by device
std::atomic<bool> g_any_context{false};
std::once_flag g_once;

// In the order of locking: a thread that holds one of these locks may only take locks further down.
void before_fork() {
  lock_functions();
  lock_streams();
  lock_pools();
  lock_memory();
  lock_host_memory();
  lock_contents();
  lock_numbers();
  lock_values();
  lock_clock();
  lock_log();
}

void unlock_all() {
  unlock_log();
  unlock_clock();
  unlock_values();
  unlock_numbers();
  unlock_contents();
  unlock_host_memory();
  unlock_memory();
  unlock_pools();
  unlock_streams();
  unlock_functions();
}

void after_fork_in_child() {
  if (g_any_context.load()) g_forked_after_use.store(true);
  reset_log_in_child();
  unlock_all();
}

}  // namespace

void touch() {
  if (g_process_used.load(std::memory_order_relaxed)) return;
  std::call_once(g_once, [] { pthread_atfork(before_fork, unlock_all, after_fork_in_child); });
  g_process_used.store(true);
}

bool used() { return g_process_used.load(); }
bool forked_after_use() { return g_forked_after_use.load(); }

bool context_active(int device) { return is_device(device) && g_contexts[static_cast<size_t>(device)].load(); }
void context_activate() { context_activate_on(current_device()); }
void context_activate_on(int device) {
  auto& context = g_contexts[static_cast<size_t>(device)];
  if (context.load(std::memory_order_relaxed)) return;
  touch();
  context.store(true);
  g_any_context.store(true);
}

const DeviceProfile& profile() {
  touch();
  static const DeviceProfile* const kProfile = new DeviceProfile(read_profile());  // never destroyed: used until the very end
  return *kProfile;
}

}  // namespace gpucast::vgpu

using namespace gpucast::vgpu;

int gpucast_vgpu_used() { return used() ? 1 : 0; }

void gpucast_vgpu_hold(int supervisor_pid) {
  // The system may give the pid to another process later, but a descriptor keeps naming this one. Kernels before 5.3 have no such
  // descriptors.
#ifdef SYS_pidfd_open
  const int supervisor = static_cast<int>(syscall(SYS_pidfd_open, supervisor_pid, 0));
  if (supervisor >= 0) {
    pollfd wait_for{supervisor, POLLIN, 0};
    while (poll(&wait_for, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(0);
  }
#endif
  const timespec pause{0, 100'000'000};
  while (kill(supervisor_pid, 0) == 0 || errno == EPERM) nanosleep(&pause, nullptr);
  _exit(0);
}
