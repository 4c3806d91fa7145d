#include "gpucast/diff.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "src/breakdown/own_bytes.h"

namespace gpucast {
namespace {

constexpr auto kPeak = static_cast<size_t>(Instant::peak);

using Key = std::pair<std::string, int32_t>;  // a row's name, and its number among rows with that name
// A row of one run, without the rows below it.
struct OwnRow {
  Key key;
  std::optional<Key> parent;
  std::string type;
  CategoryBytesOfRow bytes = {};
};

std::vector<OwnRow> own_rows(const std::vector<BreakdownRow>& rows) {
  const std::vector<CategoryBytesOfRow> own = own_bytes_at_peak(rows);
  std::vector<OwnRow> out;
  std::vector<Key> keys(rows.size());
  std::map<std::string, int32_t> seen;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].itself) continue;  // its bytes are its parent's own
    keys[i] = {rows[i].name, seen[rows[i].name]++};
    const bool has_parent = rows[i].parent >= 0;
    out.push_back({keys[i], has_parent ? std::optional(keys[static_cast<size_t>(rows[i].parent)]) : std::nullopt, rows[i].type, own[i]});
  }
  return out;
}

std::map<Key, size_t> index_of(const std::vector<OwnRow>& rows) {
  std::map<Key, size_t> out;
  for (size_t i = 0; i < rows.size(); ++i) out.emplace(rows[i].key, i);
  return out;
}

DiffRow new_row(const OwnRow& own, DiffPresence presence) {
  DiffRow row;
  row.name = own.key.first;
  row.type = own.type;
  row.presence = presence;
  row.categories.resize(kCategories);
  return row;
}

void add_bytes(const CategoryBytesOfRow& bytes, int64_t DiffBytes::*side, DiffRow* row) {
  for (size_t c = 0; c < kCategories; ++c) {
    row->categories[c].*side += bytes[c];
    row->total.*side += bytes[c];
  }
}

// Adds the rows that only one run has. A row below another such row is counted in that one.
void add_unmatched(const std::vector<OwnRow>& rows, const std::map<Key, size_t>& others, DiffPresence presence, int64_t DiffBytes::*side,
                   std::vector<DiffRow>* out) {
  std::map<Key, size_t> row_of;  // a parent comes before its children
  for (const OwnRow& own : rows) {
    if (others.contains(own.key)) continue;
    const auto above = own.parent ? row_of.find(*own.parent) : row_of.end();
    const size_t at = above == row_of.end() ? out->size() : above->second;
    if (at == out->size()) {
      out->push_back(new_row(own, presence));
    } else {
      ++(*out)[at].modules_below;
    }
    row_of[own.key] = at;
    add_bytes(own.bytes, side, &(*out)[at]);
  }
}

std::vector<DiffRow> compare_rows(const std::vector<BreakdownRow>& before_rows, const std::vector<BreakdownRow>& after_rows) {
  const std::vector<OwnRow> before = own_rows(before_rows), after = own_rows(after_rows);
  const std::map<Key, size_t> in_before = index_of(before), in_after = index_of(after);
  std::vector<DiffRow> out;
  for (const OwnRow& own : after) {
    const auto other = in_before.find(own.key);
    if (other == in_before.end()) continue;
    DiffRow row = new_row(own, DiffPresence::both);
    add_bytes(before[other->second].bytes, &DiffBytes::before_bytes, &row);
    add_bytes(own.bytes, &DiffBytes::after_bytes, &row);
    out.push_back(std::move(row));
  }
  add_unmatched(before, in_after, DiffPresence::gone, &DiffBytes::before_bytes, &out);
  add_unmatched(after, in_before, DiffPresence::added, &DiffBytes::after_bytes, &out);
  // A row without bytes in both runs is left out: most modules only contain other modules.
  std::erase_if(out, [](const DiffRow& row) { return row.total.before_bytes == 0 && row.total.after_bytes == 0; });
  std::stable_sort(out.begin(), out.end(), [](const DiffRow& a, const DiffRow& b) {
    const auto order = [](const DiffRow& row) { return std::pair(std::llabs(row.total.change_bytes()), row.total.after_bytes); };
    return order(a) > order(b);
  });
  return out;
}

DiffSide side_of(const DiffInput& input) {
  const Prediction& p = input.prediction;
  return {input.file, p.source, p.gpu_id, p.torch, p.steps, p.peak_allocated.place};
}

const char* source_words(std::string_view source) {
  if (source == "vgpu") return "a run on the virtual GPU";
  if (source == "cpu_profile") return "a profiler trace";
  return "a capture";
}

void add_notes(const DiffInput& before, const DiffInput& after, Diff* out) {
  const Prediction &a = before.prediction, &b = after.prediction;
  const bool snapshots = a.source == "snapshot" || b.source == "snapshot";
  if (a.source != b.source && !snapshots) {
    out->notes.push_back(fmt::format("Before is {}, after {}: operators and modules may have other names, and do not match then.",
                                     source_words(a.source), source_words(b.source)));
  }
  for (const auto& [p, when] : {std::pair(&a, "before"), std::pair(&b, "after")}) {
    if (p->source == "snapshot") {
      out->notes.push_back(fmt::format("The snapshot {} has no phases, modules or categories: all its bytes are unattributed.", when));
    }
    if (p->oom && p->oom->ended_run) {
      out->notes.push_back(fmt::format("The run {} ended out of memory: its peak would have been higher.", when));
    } else if (p->end_reason == "exception" || p->end_reason == "timeout" || p->end_reason == "interrupted") {
      out->notes.push_back(fmt::format("The run {} did not come to its end ({}): its peak may have been to come.", when, p->end_reason));
    }
  }
  if (a.gpu_id != b.gpu_id) {
    out->notes.push_back(fmt::format("The cards differ: {} before, {} after. --gpu NAME counts both for one.", a.gpu_id, b.gpu_id));
  }
  if (snapshots) return;  // snapshots contain neither the card, PyTorch's release nor the number of steps
  if (a.gpu_id == b.gpu_id && a.captured_gpu_id != b.captured_gpu_id) {
    out->notes.push_back(fmt::format("Recorded for different cards, {} before and {} after: kernels and workspaces differ with the card.",
                                     a.captured_gpu_id, b.captured_gpu_id));
  }
  if (a.torch != b.torch && !a.torch.empty() && !b.torch.empty()) {
    out->notes.push_back(fmt::format("PyTorch differs: {} before, {} after.", a.torch, b.torch));
  }
  if (a.steps != b.steps) {
    out->notes.push_back(
        fmt::format("The runs have {} and {} optimizer steps: what comes in later steps only one of them has.", a.steps, b.steps));
  }
}

}  // namespace

const char* diff_presence_name(DiffPresence presence) {
  switch (presence) {
    case DiffPresence::both:
      return "both";
    case DiffPresence::gone:
      return "gone";
    case DiffPresence::added:
      return "new";
  }
  return "";
}

Diff diff(const DiffInput& before, const DiffInput& after, Grouping by) {
  const Breakdown &a = before.breakdown, &b = after.breakdown;
  const BreakdownMoment &peak_a = a.moments[kPeak], &peak_b = b.moments[kPeak];
  Diff out;
  out.before = side_of(before);
  out.after = side_of(after);
  out.peak_reserved = {a.peak_reserved_bytes, b.peak_reserved_bytes};
  out.peak_allocated = {peak_a.allocated_bytes, peak_b.allocated_bytes};
  out.device = {a.device.expected_bytes, b.device.expected_bytes};
  out.free_bytes = {peak_a.reserved_bytes - peak_a.allocated_bytes, peak_b.reserved_bytes - peak_b.allocated_bytes};
  for (size_t c = 0; c < kCategories; ++c) {
    const int64_t before_bytes = peak_a.figures.categories[c].allocated_bytes, after_bytes = peak_b.figures.categories[c].allocated_bytes;
    out.categories.push_back({b.categories[c], {before_bytes, after_bytes}});
  }
  out.by = by;
  out.rows = compare_rows(a.by(by), b.by(by));
  add_notes(before, after, &out);
  return out;
}

}  // namespace gpucast
