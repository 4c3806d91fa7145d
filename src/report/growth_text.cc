#include "src/report/growth_text.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/report/user_frame.h"

namespace gpucast {
namespace {

constexpr size_t kMostHoldersShown = 3, kMostPlacesShown = 3;

std::string file_name(const std::string& frame) {
  const size_t end = frame.find(':');
  const size_t slash = frame.rfind('/', end);
  return slash == std::string::npos ? frame : frame.substr(slash + 1);
}

std::string holder_words(const GrowthHolder& holder) {
  if (holder.container.empty()) return "no collection or variable of Python was found that holds them";
  std::string text = holder.name.empty() ? "an object without a name" : holder.name;
  if (holder.container == "hooks") {
    text += fmt::format(": hooks, {} now", holder.length);
  } else if (holder.container == "lru_cache") {
    text += fmt::format(": a cache of {} result{}", holder.length, holder.length == 1 ? "" : "s");
    if (holder.bound > 0) text += fmt::format(" (at most {})", holder.bound);
  } else if (holder.container == "exceptions") {
    text += ": exceptions with their tracebacks";
  } else if (holder.container != "variable") {
    text += fmt::format(": a {} of {} entr{}", holder.container, holder.length, holder.length == 1 ? "y" : "ies");
    if (holder.bound > 0) text += fmt::format(" (at most {})", holder.bound);
  }
  if (!holder.what.empty() && holder.container != "exceptions") text += ", " + holder.what;
  if (holder.replaced) text += ", replaced by a larger tensor in each step";
  if (holder.graph) text += fmt::format(", with the graph of its steps ({})", holder.node);
  return text;
}

}  // namespace

void write_growth(const Growth& growth, TextWriter* out) {
  out->line();
  const std::string title = growth.kind == "reserved" ? "Reserved memory grows" : growth.fills_bytes > 0 ? "What fills" : "What grows";
  out->line(fmt::format("{}{}{:>14}   a step, over {} steps", out->bold(title), std::string(44 - title.size(), ' '),
                        format_bytes(growth.bytes_per_step), growth.steps));
  if (growth.kind == "reserved")
    out->wrapped("  ", "free pieces that no later request fits in (fragmentation): gpucast replay shows other allocator settings");
  for (size_t i = 0; i < std::min(kMostHoldersShown, growth.holders.size()); ++i) {
    const GrowthHolder& holder = growth.holders[i];
    out->wrapped("  held by ", holder_words(holder));
    std::vector<std::string> lines;
    lines.reserve(holder.kept_at.size());
    for (const std::string& line : holder.kept_at) lines.push_back(file_name(line));
    if (!lines.empty()) out->wrapped("    kept at ", fmt::format("{}", fmt::join(lines, ", ")));
    for (size_t k = 0; k < std::min(kMostPlacesShown, holder.made.size()); ++k) {
      const GrowthPlace& made = holder.made[k];
      Place place;
      place.stack = made.stack;
      const std::string frame = user_frame(place);
      std::string text = frame.empty() ? "made in " + made.phase : "made at " + file_name(frame) + ", " + made.phase;
      if (!made.module.empty()) text += ", in " + made.module;
      out->wrapped(fmt::format("    {:<40}{:>14}   ", "", format_bytes(made.bytes_per_step)), text);
    }
    if (holder.made.size() > kMostPlacesShown)
      out->line(fmt::format("    {:>54}   {} more places", "", holder.made.size() - kMostPlacesShown));
    out->wrapped("    instead: ", holder.remedy);
  }
  if (growth.holders.size() > kMostHoldersShown)
    out->line(fmt::format("  ... and {} more (--format json)", growth.holders.size() - kMostHoldersShown));
}

}  // namespace gpucast
