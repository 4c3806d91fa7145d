#include "src/search/recomputed_modules.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "gpucast/step_time.h"

namespace gpucast::search {
namespace {

// fully_shard makes a class FSDPBlock of Block.
bool is_of(const Trace& trace, ModuleId id, const std::string& type) {
  if (!id.valid() || id.index() >= trace.modules.size()) return false;
  const std::string_view own = trace.strings.text(trace.modules[id.index()].type);
  return own == type || (own.starts_with("FSDP") && own.substr(4) == type);
}

// The outermost module of this class that contains `id`, or is it; not valid: none.
ModuleId outermost_of(const Trace& trace, ModuleId id, const std::string& type) {
  ModuleId found;
  for (int depth = 0; id.valid() && id.index() < trace.modules.size() && depth < 100; ++depth) {
    if (is_of(trace, id, type)) found = id;
    id = trace.modules[id.index()].parent;
  }
  return found;
}

std::string path_of(const Trace& trace, ModuleId id) { return std::string(trace.strings.text(trace.modules[id.index()].name)); }

std::vector<ModuleId> in_order_of_first_run(const Trace& trace, const std::string& type) {
  std::vector<ModuleId> out;
  bool in_forward = false;
  for (const Mark& mark : trace.marks) {
    if (mark.kind == MarkKind::phase_begin || mark.kind == MarkKind::phase_end)
      in_forward = mark.kind == MarkKind::phase_begin && mark.phase == MarkedPhase::forward;
    if (mark.kind != MarkKind::module_begin || !in_forward || !is_of(trace, mark.module, type)) continue;
    const ModuleId module = outermost_of(trace, mark.module, type);
    if (std::find(out.begin(), out.end(), module) == out.end()) out.push_back(module);
  }
  return out;
}

// The end of the last forward before the peak, or of the first one after it.
uint32_t end_of_forward(const Facts& facts) {
  const std::vector<uint32_t>& ends = facts.attribution.forward_ends;
  if (ends.empty()) return facts.lifetimes.peak_allocated.position();
  const auto after = std::upper_bound(ends.begin(), ends.end(), facts.lifetimes.peak_allocated.position());
  return after == ends.begin() ? ends.front() : *(after - 1);
}

// By the module's path.
std::map<std::string, int64_t> kept_activations(const Facts& facts, const std::string& type) {
  std::map<std::string, int64_t> out;
  const uint32_t position = end_of_forward(facts);
  for (size_t i = 0; i < facts.lifetimes.blocks.size(); ++i) {
    const Block& block = facts.lifetimes.blocks[i];
    const BlockAttribution& attribution = facts.attribution.blocks[i];
    if (attribution.category != Category::activations || !block.alive_at(position)) continue;
    const ModuleId module = outermost_of(facts.trace, attribution.module, type);
    if (module.valid()) out[path_of(facts.trace, module)] += block.size_bytes;
  }
  return out;
}

std::unordered_map<int32_t, double> forward_times(const Facts& facts, const std::string& type, const Gpu& gpu) {
  std::unordered_map<int32_t, double> out;
  for (const GpuSlice& slice : gpu_slices(facts, gpu)) {
    if (slice.phase == phase_name(Phase::forward)) out[outermost_of(facts.trace, slice.module, type).value] += slice.duration_ns;
  }
  return out;
}

}  // namespace

std::vector<Recomputed> recomputed_modules(const Facts& without, const Facts& with_all, const std::string& type, const Gpu& gpu) {
  std::map<std::string, int64_t> kept = kept_activations(without, type), left = kept_activations(with_all, type);
  std::unordered_map<int32_t, double> times = forward_times(without, type, gpu);
  std::vector<Recomputed> out;
  for (const ModuleId module : in_order_of_first_run(without.trace, type)) {
    const std::string path = path_of(without.trace, module);
    out.push_back({kept[path] - left[path], times[module.value]});
  }
  return out;
}

std::string ranges_text(const std::vector<size_t>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!out.empty()) out += ',';
    out += end - i > 1 ? fmt::format("{}-{}", numbers[i], numbers[end - 1]) : std::to_string(numbers[i]);
    i = end;
  }
  return out;
}

}  // namespace gpucast::search
