#include "src/check/figures.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/attribution/attribution.h"
#include "src/breakdown/own_bytes.h"

namespace gpucast::check {
namespace {

constexpr auto kAtPeak = static_cast<size_t>(Instant::peak);
constexpr int64_t kSmallParts = 1000;

int64_t sum_of(const CategoryBytesOfRow& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

void add_at_peak(const CategoryBytesOfRow& bytes, BreakdownRow* row) {
  BreakdownFigures& figures = row->moments[kAtPeak];
  for (size_t c = 0; c < kCategories; ++c) figures.categories[c].allocated_bytes += bytes[c];
  figures.total.allocated_bytes += sum_of(bytes);
}

CategoryBytesOfRow at_peak(const BreakdownRow& row) {
  CategoryBytesOfRow out;
  for (size_t c = 0; c < kCategories; ++c) out[c] = row.moments[kAtPeak].categories[c].allocated_bytes;
  return out;
}

// A baseline does not name modules that held little at the peak. So a module that it does not name is new only if its parameters would have
// been named: all others were there, and are given no bytes.
std::vector<ModuleBytes> unnamed_before(const CardFigures& figures, const Breakdown& now) {
  std::set<std::string> known;  // with the modules above them
  for (const ModuleBytes& module : figures.modules) {
    known.insert(module.name);
    if (module.type.empty()) continue;
    for (std::string name = module.name; !name.empty();) {
      const size_t dot = name.rfind('.');
      name.resize(dot == std::string::npos ? 0 : dot);
      known.insert(name);
    }
  }
  std::set<std::string> named;
  for (const ModuleBytes& module : figures.modules) named.insert(module.name);
  const int64_t small_bytes = figures.peak_allocated_bytes / kSmallParts;
  const std::vector<BreakdownRow>& rows = now.by(Grouping::module);
  std::vector<bool> is_new(rows.size());
  std::vector<ModuleBytes> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool below_new = rows[i].parent >= 0 && is_new[static_cast<size_t>(rows[i].parent)];
    const int64_t parameters = at_peak(rows[i])[static_cast<size_t>(Category::parameters)];
    is_new[i] = below_new || (!known.contains(rows[i].name) && parameters >= std::max<int64_t>(1, small_bytes));
    if (!is_new[i] && !named.contains(rows[i].name)) out.push_back({rows[i].name, rows[i].type, {}});
  }
  return out;
}

}  // namespace

void fold_small_modules(const std::set<std::string>& kept, Breakdown* breakdown) {
  std::vector<BreakdownRow>& rows = breakdown->rows[static_cast<size_t>(Grouping::module)];
  const std::vector<CategoryBytesOfRow> own = own_bytes_at_peak(rows);
  const int64_t small_bytes = breakdown->moments[kAtPeak].allocated_bytes / kSmallParts;
  std::vector<BreakdownRow> out;
  std::vector<int32_t> place(rows.size(), -1);  // in `out`
  BreakdownRow small;
  small.name = kSmallModules;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].itself) continue;
    place[i] = static_cast<int32_t>(out.size());
    BreakdownRow row{rows[i].name, rows[i].type, -1, rows[i].depth, false, {}};
    if (rows[i].parent >= 0) row.parent = place[static_cast<size_t>(rows[i].parent)];
    const bool folded = sum_of(own[i]) < small_bytes && !kept.contains(row.name);
    add_at_peak(own[i], folded ? &small : &row);
    out.push_back(std::move(row));
  }
  for (size_t i = out.size(); i-- > 0;)
    if (out[i].parent >= 0) add_at_peak(at_peak(out[i]), &out[static_cast<size_t>(out[i].parent)]);
  if (small.moments[kAtPeak].total.allocated_bytes > 0) out.push_back(std::move(small));
  rows = std::move(out);
}

CardFigures figures_of(const Analysis& analysis, const Breakdown& folded, std::optional<int64_t> step_ns) {
  const Prediction& p = analysis.prediction;
  CardFigures out{.torch = p.torch, .steps = p.steps, .step_ns = step_ns, .modules = {}};
  out.peak_reserved_bytes = folded.peak_reserved_bytes;
  out.peak_allocated_bytes = folded.moments[kAtPeak].allocated_bytes;
  out.device_expected_bytes = folded.device.expected_bytes;
  out.device_request_bytes = folded.device.request_bytes;
  const std::vector<BreakdownRow>& rows = folded.by(Grouping::module);
  const std::vector<CategoryBytesOfRow> own = own_bytes_at_peak(rows);
  for (size_t i = 0; i < rows.size(); ++i)
    if (!rows[i].itself && sum_of(own[i]) > 0) out.modules.push_back({rows[i].name, rows[i].type, own[i]});
  return out;
}

DiffInput as_diff_input(const CardFigures& figures, const std::string& gpu, const Breakdown& now) {
  DiffInput out;
  out.file = "baseline";
  out.prediction.source = "vgpu";
  out.prediction.gpu_id = out.prediction.captured_gpu_id = gpu;
  out.prediction.torch = figures.torch;
  out.prediction.steps = figures.steps;
  Breakdown& b = out.breakdown;
  for (size_t c = 0; c < kCategories; ++c) b.categories.emplace_back(category_name(static_cast<Category>(c)));
  b.peak_reserved_bytes = figures.peak_reserved_bytes;
  b.device.expected_bytes = figures.device_expected_bytes;
  b.device.request_bytes = figures.device_request_bytes;
  BreakdownMoment& peak = b.moments[kAtPeak];
  peak.known = true;
  peak.allocated_bytes = peak.reserved_bytes = figures.peak_allocated_bytes;
  std::vector<ModuleBytes> modules = figures.modules;
  for (ModuleBytes& module : unnamed_before(figures, now)) modules.push_back(std::move(module));
  for (const ModuleBytes& module : modules) {
    BreakdownRow row{module.name, module.type, -1, 0, false, {}};
    add_at_peak(module.bytes, &row);
    b.rows[static_cast<size_t>(Grouping::module)].push_back(std::move(row));
    for (size_t c = 0; c < kCategories; ++c) peak.figures.categories[c].allocated_bytes += module.bytes[c];
  }
  return out;
}

}  // namespace gpucast::check
