// The size of the buffers that a kernel's arguments point to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "gpucast/trace.h"

namespace gpucast {

// A pointer's buffer ends at the end of its block, or at the next pointer. A pointer that is passed twice counts as read and written.
// Blocks that were freed count with their last size, because a CUDA graph uses its memory after the blocks are freed.
class PointedBytes {
 public:
  explicit PointedBytes(const Trace& trace) : events_(trace.events) {}

  // Times may not decrease from call to call, except slightly where several threads launch at once.
  int64_t bytes(std::vector<uint64_t> pointers, double unix_us);

 private:
  const std::vector<AllocatorEvent>& events_;
  size_t next_ = 0;
  std::map<uint64_t, uint64_t> ends_;  // of blocks, by begin
};

}  // namespace gpucast
