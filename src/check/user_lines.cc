#include "src/check/user_lines.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/to_number.h"
#include "src/check/figures.h"
#include "src/predict/place.h"
#include "src/report/user_frame.h"

namespace gpucast::check {
namespace {

constexpr size_t kMostTries = 20;  // the largest blocks; a loader's or an optimizer's own have no line of the user's

bool in_row(const Analysis& analysis, size_t block, const DiffRow& row) {
  const Trace& trace = analysis.facts->trace;
  const ModuleId module = analysis.facts->attribution.blocks[block].module;
  if (!module.valid() || module.index() >= trace.modules.size()) return row.type.empty() && row.name == "(outside of modules)";
  const std::string_view name = trace.strings.text(trace.modules[module.index()].name);
  if (name == row.name) return true;
  return row.modules_below > 0 && (row.name.empty() || (name.starts_with(row.name) && name[row.name.size()] == '.'));
}

}  // namespace

std::string user_line(const Analysis& analysis, const DiffRow& row) {
  if (row.name == kSmallModules) return "";
  const Facts& facts = *analysis.facts;
  const uint32_t position = facts.lifetimes.peak_allocated.position();
  std::vector<std::pair<int64_t, size_t>> blocks;
  for (size_t i = 0; i < facts.lifetimes.blocks.size(); ++i) {
    const Block& block = facts.lifetimes.blocks[i];
    if (!block.before_start && block.alive_at(position) && in_row(analysis, i, row)) blocks.emplace_back(-block.size_bytes, i);
  }
  std::sort(blocks.begin(), blocks.end());
  for (size_t i = 0; i < std::min(blocks.size(), kMostTries); ++i) {
    const uint32_t event = facts.lifetimes.blocks[blocks[i].second].alloc_event;
    const std::string frame = user_frame(place_of_event(facts.trace, facts.attribution, event));
    if (!frame.empty()) return frame;
  }
  return "";
}

std::optional<SourceLine> source_line(const std::string& frame) {
  const std::string place = frame.substr(0, frame.rfind(' '));
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto line = to_number<int64_t>(std::string_view(place).substr(colon + 1));
  if (!line || *line < 1 || colon == 0) return std::nullopt;
  return SourceLine{place.substr(0, colon), *line};
}

std::string relative_to(const std::string& path, const std::string& folder) {
  const std::filesystem::path relative = std::filesystem::path(path).lexically_relative(folder);
  return relative.empty() || *relative.begin() == ".." ? path : relative.string();
}

}  // namespace gpucast::check
