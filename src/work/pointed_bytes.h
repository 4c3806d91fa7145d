// The size of the buffers that a kernel's arguments point to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "gpucast/trace.h"

namespace gpucast {

// A pointer counts up to the end of its block, or to the next of the pointers; one that stands twice is read and written. Blocks that were
// given back count with their last size: nobody owns the memory of a CUDA graph when it is replayed.
class PointedBytes {
 public:
  explicit PointedBytes(const Trace& trace) : events_(trace.events) {}

  // Asked with times that do not fall, but for threads that write at once.
  int64_t bytes(std::vector<uint64_t> pointers, double unix_us);

 private:
  const std::vector<AllocatorEvent>& events_;
  size_t next_ = 0;
  std::map<uint64_t, uint64_t> ends_;  // by where blocks begin
};

}  // namespace gpucast
