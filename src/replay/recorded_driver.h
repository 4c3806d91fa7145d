// A driver that repeats the recorded answers: the same addresses, and out of memory at the same requests.
#pragma once

#include <cstdint>
#include <optional>

#include "gpucast/history.h"
#include "src/allocator/driver.h"

namespace gpucast {

class RecordedDriver : public Driver {
 public:
  // `history` is not owned. `total_bytes`: the card's memory; 0: unknown.
  RecordedDriver(const History* history, int64_t total_bytes) : history_(history), total_bytes_(total_bytes) {}

  // The following calls belong to `op`.
  void begin_op(int64_t op);

  std::optional<uint64_t> allocate(int64_t size_bytes) override;
  void free(uint64_t address, int64_t size_bytes) override;
  uint64_t reserve(int64_t size_bytes) override;
  void release(uint64_t address, int64_t size_bytes) override;
  bool map(uint64_t address, int64_t size_bytes) override;
  void unmap(uint64_t address, int64_t size_bytes) override;
  void adopt(uint64_t address, int64_t size_bytes) override;
  int64_t free_bytes() const override;
  int64_t total_bytes() const override { return total_bytes_; }

 private:
  const AllocatorAction* next_action(EventKind kind) const;
  void consume_action(EventKind kind);

  const History* history_;
  int64_t total_bytes_;
  int64_t used_bytes_ = 0;
  size_t at_ = 0, end_ = 0;                       // range in history_->actions
  uint64_t next_unrecorded_ = uint64_t{1} << 62;  // for requests that the recording does not have
};

}  // namespace gpucast
