// Where the memory goes: the allocated bytes by category over modules, operators, phases, steps and tensors
// (docs/reference/breakdown.md). Everything adds up: rows to the moment's allocated bytes, those with the free part of the
// segments to reserved, that with the ledger to the device total.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/prediction.h"

namespace gpucast {

struct Analysis;

// When a row is looked at. `maximum` is no moment: each figure's own highest value over the whole run.
enum class Instant : uint8_t {
  peak,         // the highest allocated
  forward_end,  // the end of the outermost forward before the peak, or the first behind it
  end,          // the end of the capture
  maximum,
  count_,
};
const char* instant_name(Instant moment);  // "peak", "forward_end", "end", "maximum"

inline constexpr size_t kInstants = static_cast<size_t>(Instant::count_);
inline constexpr size_t kCategories = 12;  // as enum Category in src/attribution/attribution.h

// `allocated_bytes` counts whole blocks, `requested_bytes` what was asked for; the difference is rounding.
struct BreakdownFigure {
  int64_t allocated_bytes = 0, requested_bytes = 0;
};

struct BreakdownFigures {
  std::array<BreakdownFigure, kCategories> categories;
  BreakdownFigure total;  // Instant::maximum: the highest sum, not the sum of the highest
};

enum class Grouping : uint8_t { module, op, phase, step, tensor, count_ };
const char* grouping_name(Grouping grouping);  // "module", "operator", "phase", "step", "tensor"

struct BreakdownRow {
  std::string name;     // module: its path, "layer1.0.conv1"; tensor: "layer1.0.conv1.weight"; "" for the root module
  std::string type;     // module: its class
  int32_t parent = -1;  // module: index of its parent's row, which comes before; -1 for the others
  int32_t depth = 0;
  bool itself = false;                              // module: what belongs to the parent row's module and to none of its children
  std::array<BreakdownFigures, kInstants> moments;  // of a module: with everything below it
};

// What holds at one moment. Not known (a snapshot has no phases): `known` is false.
struct BreakdownMoment {
  bool known = false;
  Place place;
  int64_t allocated_bytes = 0, reserved_bytes = 0;
  BreakdownFigures figures;
};

struct Breakdown {
  std::vector<std::string> categories;             // names, in order of BreakdownFigures::categories
  std::array<BreakdownMoment, kInstants> moments;  // of Instant::maximum only `figures` counts
  std::array<std::vector<BreakdownRow>, static_cast<size_t>(Grouping::count_)> rows;
  int64_t peak_reserved_bytes = 0;
  std::vector<LedgerLine> ledger;
  DeviceBytes device;  // peak reserved and the ledger

  const std::vector<BreakdownRow>& by(Grouping grouping) const { return rows[static_cast<size_t>(grouping)]; }
};

// O(events * depth of the module tree).
Breakdown breakdown(const Analysis& analysis);

}  // namespace gpucast
