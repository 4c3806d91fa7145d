// Device memory from the driver: how much there is, and at which addresses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace gpucast {

// The functions of the driver that an allocator calls. Sizes are whole pages of 2 MiB.
class Driver {
 public:
  static constexpr int64_t kPageBytes = int64_t{2} << 20;
  static constexpr int64_t whole_pages(int64_t size_bytes) { return (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

  virtual ~Driver() = default;
  virtual std::optional<uint64_t> allocate(int64_t size_bytes) = 0;  // cudaMalloc; nothing: out of memory
  virtual void free(uint64_t address, int64_t size_bytes) = 0;       // cudaFree
  // Expandable segments: a range of addresses, and memory that is mapped into it and unmapped again.
  virtual uint64_t reserve(int64_t size_bytes) = 0;
  virtual void release(uint64_t address, int64_t size_bytes) = 0;
  virtual bool map(uint64_t address, int64_t size_bytes) = 0;  // false: out of memory, nothing is mapped
  virtual void unmap(uint64_t address, int64_t size_bytes) = 0;
  // Memory allocated before the first call: its pages are in use.
  virtual void adopt(uint64_t address, int64_t size_bytes) = 0;

  virtual int64_t free_bytes() const = 0;
  virtual int64_t total_bytes() const = 0;
};

// A new segment goes directly after the highest one in use, as in event files (docs/reference/event-format.md).
class AscendingDriver : public Driver {
 public:
  explicit AscendingDriver(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  std::optional<uint64_t> allocate(int64_t size_bytes) override;
  void free(uint64_t address, int64_t size_bytes) override;
  uint64_t reserve(int64_t size_bytes) override;
  void release(uint64_t address, int64_t size_bytes) override;
  bool map(uint64_t address, int64_t size_bytes) override;
  void unmap(uint64_t address, int64_t size_bytes) override;
  void adopt(uint64_t address, int64_t size_bytes) override;
  int64_t free_bytes() const override { return capacity_bytes_ - used_bytes_; }
  int64_t total_bytes() const override { return capacity_bytes_; }

 private:
  bool use_if_free(int64_t size_bytes);
  int64_t capacity_bytes_, used_bytes_ = 0;
  std::map<uint64_t, uint64_t> segments_, ranges_;  // in use: address -> end
};

}  // namespace gpucast
