// The actions of an allocator, with the names of PyTorch's memory history. Readers and the simulation share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace gpucast {

enum class EventKind : uint8_t { alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom };

inline constexpr std::string_view kEventKindNames[] = {"alloc",        "free_requested", "free_completed", "segment_alloc",
                                                       "segment_free", "segment_map",    "segment_unmap",  "oom"};

constexpr std::string_view event_kind_name(EventKind kind) { return kEventKindNames[static_cast<size_t>(kind)]; }

constexpr std::optional<EventKind> event_kind(std::string_view name) {
  for (size_t i = 0; i < std::size(kEventKindNames); ++i) {
    if (kEventKindNames[i] == name) return static_cast<EventKind>(i);
  }
  return std::nullopt;
}

}  // namespace gpucast
