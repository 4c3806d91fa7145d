#include "src/allocator/driver.h"

namespace gpucast {
namespace {

constexpr uint64_t kFirstSegment = 0x200000000000, kFirstRange = 0x300000000000;

uint64_t after_last(std::map<uint64_t, uint64_t>* in_use, uint64_t first, int64_t size_bytes) {
  const uint64_t address = in_use->empty() ? first : in_use->rbegin()->second;
  in_use->emplace(address, address + static_cast<uint64_t>(size_bytes));
  return address;
}

}  // namespace

bool AscendingDriver::use_if_free(int64_t size_bytes) {
  if (size_bytes > capacity_bytes_ - used_bytes_) return false;
  used_bytes_ += size_bytes;
  return true;
}

std::optional<uint64_t> AscendingDriver::allocate(int64_t size_bytes) {
  const int64_t size = whole_pages(size_bytes);
  if (!use_if_free(size)) return std::nullopt;
  return after_last(&segments_, kFirstSegment, size);
}

void AscendingDriver::free(uint64_t address, int64_t size_bytes) {
  segments_.erase(address);
  used_bytes_ -= whole_pages(size_bytes);
}

uint64_t AscendingDriver::reserve(int64_t size_bytes) { return after_last(&ranges_, kFirstRange, whole_pages(size_bytes)); }

void AscendingDriver::release(uint64_t address, int64_t /*size_bytes*/) { ranges_.erase(address); }

bool AscendingDriver::map(uint64_t /*address*/, int64_t size_bytes) { return use_if_free(size_bytes); }

void AscendingDriver::unmap(uint64_t /*address*/, int64_t size_bytes) { used_bytes_ -= size_bytes; }

void AscendingDriver::adopt(uint64_t address, int64_t size_bytes) {
  used_bytes_ += whole_pages(size_bytes);
  (address < kFirstRange ? segments_ : ranges_).emplace(address, address + static_cast<uint64_t>(whole_pages(size_bytes)));
}

}  // namespace gpucast
