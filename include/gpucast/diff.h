// What grew from one run to another (docs/reference/diff.md): peaks, the device total, and the allocated bytes at each run's peak, by
// category and by module, operator, phase, step or tensor. Rows do not overlap, and they add up to the change of peak allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/breakdown.h"
#include "gpucast/prediction.h"

namespace gpucast {

// One of the two runs. Only the peaks and the identifying fields of the prediction are used.
struct DiffInput {
  std::string file;
  Prediction prediction;
  Breakdown breakdown;
};

struct DiffBytes {
  int64_t before_bytes = 0, after_bytes = 0;
  int64_t change_bytes() const { return after_bytes - before_bytes; }
};

// The facts of a run that a reader needs to judge the comparison.
struct DiffSide {
  std::string file, source, gpu_id, torch;
  int32_t steps = 0;
  Place peak;  // of peak allocated
};

enum class DiffPresence : uint8_t { both, gone, added };
const char* diff_presence_name(DiffPresence presence);  // "both", "gone", "new"

// A module's row does not include the modules below it, so that rows add up. If only one run has a module, its row includes all modules
// below it.
struct DiffRow {
  std::string name;  // as in Breakdown
  std::string type;  // module: its class
  DiffPresence presence = DiffPresence::both;
  int64_t modules_below = 0;  // modules below that are part of this row
  DiffBytes total;
  std::vector<DiffBytes> categories;  // as Diff::categories
};

struct DiffCategory {
  std::string name;
  DiffBytes bytes;
};

// The limit on the growth of peak reserved.
struct FailAbove {
  std::string text;       // as typed: "50MiB", "5%"
  int64_t bytes = 0;      // for a percentage: of the earlier run's peak
  bool exceeded = false;  // peak reserved grew by more
};

struct Diff {
  DiffSide before, after;
  DiffBytes peak_reserved, peak_allocated, device;  // device: expected
  std::vector<DiffCategory> categories;             // allocated at the peak; they add up to peak_allocated
  DiffBytes free_bytes;                             // free in the allocator's segments at the peak
  Grouping by = Grouping::module;
  std::vector<DiffRow> rows;       // the largest change first; they add up to peak_allocated
  std::vector<std::string> notes;  // reasons why the two runs are hard to compare, one sentence each
  std::optional<FailAbove> fail_above;
};

Diff diff(const DiffInput& before, const DiffInput& after, Grouping by);

}  // namespace gpucast
