// Typed indices: an index of one kind of thing cannot be used for another.
//
//   using ModuleId = Id<struct ModuleTag>;
//   modules[id.index()]
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace gpucast {

template <class Tag>
struct Id {
  int32_t value = -1;  // -1: none

  constexpr Id() = default;
  constexpr explicit Id(int64_t index) : value(static_cast<int32_t>(index)) {}
  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;  // NOLINT(modernize-use-nullptr): false alarm
};

}  // namespace gpucast
