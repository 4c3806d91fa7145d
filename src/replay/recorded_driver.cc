#include "src/replay/recorded_driver.h"

#include <algorithm>

namespace gpucast {
namespace {

bool is_segment_action(EventKind kind) {
  return kind == EventKind::segment_alloc || kind == EventKind::segment_free || kind == EventKind::segment_map ||
         kind == EventKind::segment_unmap || kind == EventKind::oom;
}

}  // namespace

void RecordedDriver::begin_op(int64_t op) {
  at_ = history_->first_action[static_cast<size_t>(op)];
  end_ = history_->first_action[static_cast<size_t>(op) + 1];
}

// The next recorded driver action of this op, if it has this kind.
const AllocatorAction* RecordedDriver::next_action(EventKind kind) const {
  for (size_t i = at_; i < end_; ++i) {
    const AllocatorAction& action = history_->actions[i];
    if (is_segment_action(action.kind)) return action.kind == kind ? &action : nullptr;
  }
  return nullptr;
}

void RecordedDriver::consume_action(EventKind kind) {
  for (; at_ < end_; ++at_) {
    if (history_->actions[at_].kind == kind) {
      ++at_;
      return;
    }
  }
}

std::optional<uint64_t> RecordedDriver::allocate(int64_t size_bytes) {
  if (const AllocatorAction* action = next_action(EventKind::segment_alloc)) {
    if (action->size_bytes != size_bytes) return std::nullopt;
    consume_action(EventKind::segment_alloc);
    used_bytes_ += size_bytes;
    return action->address;
  }
  if (next_action(EventKind::segment_free) != nullptr || next_action(EventKind::segment_unmap) != nullptr ||
      next_action(EventKind::oom) != nullptr) {
    return std::nullopt;
  }
  // The recorded allocator needed no segment here: the replay differs from the recording.
  const uint64_t address = next_unrecorded_;
  next_unrecorded_ += static_cast<uint64_t>(size_bytes);
  used_bytes_ += size_bytes;
  return address;
}

void RecordedDriver::free(uint64_t /*address*/, int64_t size_bytes) {
  used_bytes_ -= size_bytes;
  if (next_action(EventKind::segment_free) != nullptr) consume_action(EventKind::segment_free);
}

uint64_t RecordedDriver::reserve(int64_t size_bytes) {
  if (const AllocatorAction* action = next_action(EventKind::segment_map)) return action->address;
  const uint64_t address = next_unrecorded_;
  next_unrecorded_ += static_cast<uint64_t>(size_bytes);
  return address;
}

void RecordedDriver::release(uint64_t /*address*/, int64_t /*size_bytes*/) {}

bool RecordedDriver::map(uint64_t address, int64_t size_bytes) {
  if (const AllocatorAction* action = next_action(EventKind::segment_map)) {
    if (action->size_bytes != size_bytes || action->address != address) return false;
    consume_action(EventKind::segment_map);
  } else if (next_action(EventKind::segment_unmap) != nullptr || next_action(EventKind::segment_free) != nullptr ||
             next_action(EventKind::oom) != nullptr) {
    return false;
  }
  used_bytes_ += size_bytes;
  return true;
}

void RecordedDriver::unmap(uint64_t /*address*/, int64_t size_bytes) {
  used_bytes_ -= size_bytes;
  if (next_action(EventKind::segment_unmap) != nullptr) consume_action(EventKind::segment_unmap);
}

void RecordedDriver::adopt(uint64_t /*address*/, int64_t size_bytes) { used_bytes_ += size_bytes; }

int64_t RecordedDriver::free_bytes() const {
  if (const AllocatorAction* action = next_action(EventKind::oom)) return static_cast<int64_t>(action->address);
  return std::max<int64_t>(0, total_bytes_ - used_bytes_);
}

}  // namespace gpucast
