// Where the memory goes: the allocated bytes by category, over modules, operators, phases, steps and tensors (docs/reference/breakdown.md).
// Everything adds up: rows to the allocated bytes at that moment, these plus the free part of the segments to reserved, and reserved plus
// the ledger to the device total.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/prediction.h"

namespace gpucast {

struct Analysis;

// The moment of a row's figures. `maximum` is not one moment: it is the highest value of each figure over the whole run.
enum class Instant : uint8_t {
  peak,         // the highest allocated memory
  forward_end,  // the end of the outermost forward before the peak, or else the first one after it
  end,          // the end of the capture
  maximum,
  count_,
};
const char* instant_name(Instant moment);  // "peak", "forward_end", "end", "maximum"

inline constexpr size_t kInstants = static_cast<size_t>(Instant::count_);
inline constexpr size_t kCategories = 12;  // as in enum Category of src/attribution/attribution.h

// `allocated_bytes` counts whole blocks, `requested_bytes` the program's requests; the difference is rounding.
struct BreakdownFigure {
  int64_t allocated_bytes = 0, requested_bytes = 0;
};

struct BreakdownFigures {
  std::array<BreakdownFigure, kCategories> categories;
  BreakdownFigure total;  // Instant::maximum: the highest sum, not the sum of the highest values
};

enum class Grouping : uint8_t { module, op, phase, step, tensor, count_ };
const char* grouping_name(Grouping grouping);  // "module", "operator", "phase", "step", "tensor"

struct BreakdownRow {
  std::string name;     // module: its path, "layer1.0.conv1"; tensor: "layer1.0.conv1.weight"; "" for the root module
  std::string type;     // module: its class
  int32_t parent = -1;  // module: index of its parent's row, which comes earlier; -1 for the others
  int32_t depth = 0;
  bool itself = false;                              // module: the share of the parent row's module without its children
  std::array<BreakdownFigures, kInstants> moments;  // for a module: with everything below it
};

// The state at one moment. `known` false: not known (a snapshot has no phases).
struct BreakdownMoment {
  bool known = false;
  Place place;
  int64_t allocated_bytes = 0, reserved_bytes = 0;
  BreakdownFigures figures;
};

struct Breakdown {
  std::vector<std::string> categories;             // names, in order of BreakdownFigures::categories
  std::array<BreakdownMoment, kInstants> moments;  // for Instant::maximum only `figures` counts
  std::array<std::vector<BreakdownRow>, static_cast<size_t>(Grouping::count_)> rows;
  int64_t peak_reserved_bytes = 0;
  std::vector<LedgerLine> ledger;
  DeviceBytes device;  // peak reserved and the ledger

  const std::vector<BreakdownRow>& by(Grouping grouping) const { return rows[static_cast<size_t>(grouping)]; }
};

// O(events * depth of the module tree).
Breakdown breakdown(const Analysis& analysis);

}  // namespace gpucast
