// The values that the host gets when it reads a small unknown value from the card: zero, or a better value from the capture layer.
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/regions.h"

namespace gpucast::vgpu {
namespace {

constexpr size_t kScalarBytes = 8;

// One for each thread: PyTorch reads from the card in the thread that called it.
struct Reads {
  const char* last_kernel = "";  // the last one launched
  bool known = true;             // whether the contents of the last read were known
  std::vector<int64_t> answers;
  size_t next = 0;
  bool counted = false;  // the last counting kernel's mask has a noted count (`count`)
  int64_t count = 0;
};
thread_local Reads t_reads;

// The number of nonzero elements of a mask, by its address. Autograd counts masks again that it has saved.
struct Counts {
  static constexpr size_t kMost = 1 << 16;
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::unordered_map<uint64_t, int64_t> by_address;
};
Counts& counts_of_masks() {
  static Counts* const kCounts = new Counts;  // never destroyed: used until the very end
  return *kCounts;
}

std::atomic<void (*)()> g_on_unknown_count{nullptr};
std::atomic<int (*)()> g_on_unknown_condition{nullptr};
std::atomic<uint64_t> g_uploads{0};

// nonzero, unique, repeat_interleave and similar operations count with CUB or Thrust, and then read the length of their result. Sizes that
// are tensors are read as 8 bytes.
bool is_count(size_t size_bytes, std::string_view kernel) {
  return size_bytes == kScalarBytes || kernel.find("3cub") != kernel.npos || kernel.find("6thrust") != kernel.npos;
}

}  // namespace

void note_kernel(const char* name, const void* const* arguments) {
  Reads& reads = t_reads;
  reads.last_kernel = name;
  Counts& counts = counts_of_masks();
  if (!counts.any.load(std::memory_order_relaxed) || arguments == nullptr || std::strstr(name, "NonZeroOp") == nullptr ||
      std::strstr(name, "DeviceReduce") == nullptr)
    return;
  // The first argument is an iterator. Its first field is the address (aten/src/ATen/native/cuda/Nonzero.cu, cub/device/device_reduce.cuh).
  uint64_t address = 0;
  std::memcpy(&address, arguments[0], sizeof address);
  const std::lock_guard lock(counts.mutex);
  const auto found = counts.by_address.find(address);
  reads.counted = found != counts.by_address.end();
  if (reads.counted) reads.count = found->second;
}

void note_read(void* to, size_t size_bytes, bool known) {
  Reads& reads = t_reads;
  const bool counted = std::exchange(reads.counted, false);  // the count is for the next read
  reads.known = known;
  if (known || size_bytes > kScalarBytes) return;
  if (!reads.answers.empty()) {
    std::memcpy(to, &reads.answers[reads.next], size_bytes);  // little endian
    if (reads.next + 1 < reads.answers.size()) ++reads.next;
    return;
  }
  if (counted) {
    std::memcpy(to, &reads.count, size_bytes);
    return;
  }
  if (const auto condition = g_on_unknown_condition.load(); condition != nullptr && size_bytes == 1)
    *static_cast<bool*>(to) = condition() != 0;
  if (const auto callback = g_on_unknown_count.load(); callback != nullptr && is_count(size_bytes, reads.last_kernel)) callback();
}

void note_upload(size_t size_bytes) {
  if (size_bytes > kScalarBytes) g_uploads.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace gpucast::vgpu

extern "C" {

void gpucast_vgpu_answer_reads(const int64_t* values, int count) {
  gpucast::vgpu::t_reads.answers.assign(values, values + count);
  gpucast::vgpu::t_reads.next = 0;
}

void gpucast_vgpu_note_count(uint64_t address, int64_t count) {
  gpucast::vgpu::Counts& counts = gpucast::vgpu::counts_of_masks();
  const std::lock_guard lock(counts.mutex);
  if (counts.by_address.size() == gpucast::vgpu::Counts::kMost) counts.by_address.clear();
  counts.by_address[address] = count;
  counts.any = true;
}

int gpucast_vgpu_read_known() { return gpucast::vgpu::t_reads.known ? 1 : 0; }

void gpucast_vgpu_on_unknown_count(void (*callback)()) { gpucast::vgpu::g_on_unknown_count = callback; }

void gpucast_vgpu_on_unknown_condition(int (*callback)()) { gpucast::vgpu::g_on_unknown_condition = callback; }

uint64_t gpucast_vgpu_uploads() { return gpucast::vgpu::g_uploads.load(std::memory_order_relaxed); }
}
