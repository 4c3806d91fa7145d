#include "src/replay/linux_driver.h"

namespace gpucast {
namespace {

constexpr uint64_t kRangeBytes = 32 << 20;  // the driver reserves addresses in units of this
constexpr auto kPageBytes = static_cast<uint64_t>(Driver::kPageBytes);

}  // namespace

LinuxDriver::LinuxDriver(int64_t capacity_bytes, int64_t total_bytes)
    : capacity_bytes_(capacity_bytes),
      total_bytes_(total_bytes),
      space_([this](uint64_t size, uint64_t alignment) { return below(size, alignment); }, kPageBytes, kRangeBytes),
      ranges_([this](uint64_t size, uint64_t) { return below(size, kPageBytes); }, kPageBytes, kPageBytes) {}

uint64_t LinuxDriver::below(uint64_t size_bytes, uint64_t alignment_bytes) {
  if (size_bytes > lowest_ / 2) return 0;
  lowest_ = (lowest_ - size_bytes) / alignment_bytes * alignment_bytes;
  return lowest_;
}

std::optional<uint64_t> LinuxDriver::allocate(int64_t size_bytes) {
  const int64_t size = whole_pages(size_bytes);
  if (size > free_bytes()) return std::nullopt;
  const uint64_t address = space_.allocate(static_cast<uint64_t>(size));
  if (address == 0) return std::nullopt;
  used_bytes_ += size;
  return address;
}

void LinuxDriver::free(uint64_t address, int64_t size_bytes) {
  space_.free(address);
  used_bytes_ -= whole_pages(size_bytes);
}

uint64_t LinuxDriver::reserve(int64_t size_bytes) { return ranges_.allocate(static_cast<uint64_t>(size_bytes)); }

void LinuxDriver::release(uint64_t address, int64_t /*size_bytes*/) { ranges_.free(address); }

bool LinuxDriver::map(uint64_t /*address*/, int64_t size_bytes) {
  if (size_bytes > free_bytes()) return false;
  used_bytes_ += size_bytes;
  return true;
}

void LinuxDriver::unmap(uint64_t /*address*/, int64_t size_bytes) { used_bytes_ -= size_bytes; }

// New addresses are just below 2^62, and addresses of recorded histories are much lower, so they never collide.
void LinuxDriver::adopt(uint64_t /*address*/, int64_t size_bytes) { used_bytes_ += whole_pages(size_bytes); }

}  // namespace gpucast
