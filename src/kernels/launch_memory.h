// The memory of a launch whose values are followed: what its threads have written so far, and what was there before.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/kernels/kernel_counts.h"
#include "src/kernels/ptx_code.h"

namespace gpucast::ptx {

uint64_t shared_bytes_of(const Kernel& kernel, const KernelLaunch& launch);

class LaunchMemory {
 public:
  LaunchMemory(const KnownValue& known, uint64_t shared_bytes) : known_(known), shared_(shared_bytes) {}

  void begin_block();  // shared memory is not known

  // Numbers of at most 8 bytes. Unset: not known.
  std::optional<uint64_t> read(uint64_t address, uint32_t bytes) const;
  std::optional<uint64_t> read_shared(uint64_t offset, uint32_t bytes) const;
  void write(uint64_t address, uint32_t bytes, std::optional<uint64_t> value);
  void write_shared(uint64_t offset, uint32_t bytes, std::optional<uint64_t> value);

  uint64_t known_bytes() const { return known_bytes_; }  // stored so far
  std::vector<StoredNumbers> stored() const;             // by address

  bool failed = false;  // what is not known decides what the launch does

 private:
  static constexpr uint64_t kPage = 1024;
  struct Page {
    unsigned char bytes[kPage];
    std::bitset<kPage> written, known;
  };
  struct SharedByte {
    unsigned char value = 0;
    bool known = false;
  };

  Page* page_of(uint64_t number) const;

  const KnownValue& known_;
  std::map<uint64_t, std::unique_ptr<Page>> pages_;  // by number
  mutable Page* last_ = nullptr;                     // the page of the last access
  mutable uint64_t last_number_ = ~uint64_t{0};
  std::vector<SharedByte> shared_;
  uint64_t known_bytes_ = 0;
};

}  // namespace gpucast::ptx
