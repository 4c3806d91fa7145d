// A run's requests to the allocator at a value that was not run, from two runs at other values: each request grows with the value as it did
// between the two. A guess: it says which value to run next.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/history.h"
#include "src/predict/facts.h"

namespace gpucast::search {

struct MarkedHistory {
  History history;
  std::vector<MarkKind> marks;         // modules and phases that begin and end, in order
  std::vector<uint32_t> marks_before;  // of each allocation of `history`
  std::vector<size_t> step_ends;       // see step_end_ops(); of the first steps. Empty: the script does not go on
};

MarkedHistory marked_history(const Facts& facts);

// Whether the script would have made more steps than were captured.
bool goes_on(const Facts& facts);

// What a run does up to its mark number `marks`, and up to the next allocation.
MarkedHistory beginning_of(MarkedHistory run, size_t marks);

// For each allocation of `base`: the bytes that it grows by when the value grows by 1. Allocations are paired between the same two marks:
// in order, or, where one run makes more of them, by size. Empty: the two runs do not pass the same marks.
std::vector<double> growth_bytes(const MarkedHistory& base, int64_t base_value, const MarkedHistory& other, int64_t other_value);

// Whether the op allocates memory that the next op frees.
bool is_workspace(const History& history, size_t op);

// The same without the memory that is allocated and freed at once. On a full card libraries take less of it for their workspaces, and
// this is the least that the run may need.
MarkedHistory without_workspaces(MarkedHistory run);

// `base` at a value that is larger by `more`.
History scaled(const MarkedHistory& base, const std::vector<double>& growth_bytes, int64_t more);

}  // namespace gpucast::search
