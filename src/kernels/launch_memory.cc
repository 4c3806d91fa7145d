#include "src/kernels/launch_memory.h"

#include <algorithm>
#include <cstring>

namespace gpucast {

std::optional<uint64_t> integer_in(std::string_view bytes, uint64_t offset, size_t size) {
  if (offset >= bytes.size() || size > bytes.size() - offset || size > 8) return std::nullopt;
  uint64_t out = 0;
  std::memcpy(&out, bytes.data() + offset, size);  // the card is little-endian, too
  return out;
}

namespace ptx {

uint64_t shared_bytes_of(const Kernel& kernel, const KernelLaunch& launch) {
  constexpr uint64_t kMost = 1 << 20, kAlignment = 16;  // of dynamic shared memory, after the static one
  return std::min<uint64_t>(kMost, kernel.static_shared_bytes + kAlignment + launch.dynamic_shared_bytes);
}

void LaunchMemory::begin_block() { std::fill(shared_.begin(), shared_.end(), SharedByte{}); }

LaunchMemory::Page* LaunchMemory::page_of(uint64_t number) const {
  if (number != last_number_) {
    const auto found = pages_.find(number);
    last_ = found == pages_.end() ? nullptr : found->second.get();
    last_number_ = number;
  }
  return last_;
}

std::optional<uint64_t> LaunchMemory::read(uint64_t address, uint32_t bytes) const {
  const uint64_t first = address / kPage, last = (address + bytes - 1) / kPage;
  if (page_of(first) == nullptr && page_of(last) == nullptr) return known_ ? known_(address, static_cast<int>(bytes)) : std::nullopt;
  uint64_t out = 0;
  for (uint32_t b = 0; b < bytes; ++b) {
    const Page* page = page_of((address + b) / kPage);
    const uint64_t at = (address + b) % kPage;
    std::optional<uint64_t> byte;
    if (page == nullptr || !page->written[at]) {
      byte = known_ ? known_(address + b, 1) : std::nullopt;
    } else if (page->known[at]) {
      byte = page->bytes[at];
    }
    if (!byte) return std::nullopt;
    out |= *byte << (8 * b);
  }
  return out;
}

void LaunchMemory::write(uint64_t address, uint32_t bytes, std::optional<uint64_t> value) {
  for (uint32_t b = 0; b < bytes; ++b) {
    const uint64_t number = (address + b) / kPage, at = (address + b) % kPage;
    Page* page = page_of(number);
    if (page == nullptr) page = last_ = (pages_[number] = std::make_unique<Page>()).get();
    page->written[at] = true;
    page->known[at] = value.has_value();
    page->bytes[at] = static_cast<unsigned char>(value.value_or(0) >> (8 * b));
  }
  if (value) known_bytes_ += bytes;
}

std::optional<uint64_t> LaunchMemory::read_shared(uint64_t offset, uint32_t bytes) const {
  if (offset >= shared_.size() || bytes > shared_.size() - offset) return std::nullopt;
  uint64_t out = 0;
  for (uint32_t b = 0; b < bytes; ++b) {
    if (!shared_[offset + b].known) return std::nullopt;
    out |= uint64_t{shared_[offset + b].value} << (8 * b);
  }
  return out;
}

void LaunchMemory::write_shared(uint64_t offset, uint32_t bytes, std::optional<uint64_t> value) {
  if (offset >= shared_.size() || bytes > shared_.size() - offset) return;
  for (uint32_t b = 0; b < bytes; ++b) shared_[offset + b] = {static_cast<unsigned char>(value.value_or(0) >> (8 * b)), value.has_value()};
}

std::vector<StoredNumbers> LaunchMemory::stored() const {
  std::vector<StoredNumbers> out;
  for (const auto& [number, page] : pages_) {
    for (uint64_t at = 0; at < kPage; ++at) {
      if (!page->written[at]) continue;
      const uint64_t address = number * kPage + at;
      const bool known = page->known[at];
      if (out.empty() || out.back().known != known || out.back().address + out.back().bytes.size() != address)
        out.push_back({address, {}, known});
      out.back().bytes.push_back(static_cast<char>(page->bytes[at]));
    }
  }
  return out;
}

}  // namespace ptx
}  // namespace gpucast
