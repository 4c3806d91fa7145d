// Places device memory like NVIDIA's driver on Linux, with the same address space classes as the virtual GPU (src/vgpu/core/memory.cc).
#pragma once

#include "src/allocator/driver.h"
#include "src/base/address_space.h"

namespace gpucast {

class LinuxDriver : public Driver {
 public:
  LinuxDriver(int64_t capacity_bytes, int64_t total_bytes);
  std::optional<uint64_t> allocate(int64_t size_bytes) override;
  void free(uint64_t address, int64_t size_bytes) override;
  uint64_t reserve(int64_t size_bytes) override;
  void release(uint64_t address, int64_t size_bytes) override;
  bool map(uint64_t address, int64_t size_bytes) override;
  void unmap(uint64_t address, int64_t size_bytes) override;
  void adopt(uint64_t address, int64_t size_bytes) override;
  int64_t free_bytes() const override { return capacity_bytes_ - used_bytes_; }
  int64_t total_bytes() const override { return total_bytes_; }

 private:
  uint64_t below(uint64_t size_bytes, uint64_t alignment_bytes);
  int64_t capacity_bytes_, total_bytes_, used_bytes_ = 0;
  uint64_t lowest_ = uint64_t{1} << 62;  // addresses descend from here; only their order matters
  AddressSpace space_;                   // cudaMalloc
  AddressSpace ranges_;                  // address ranges of expandable segments
};

}  // namespace gpucast
