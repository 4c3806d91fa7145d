#include "gpucast/trace.h"

#include <fmt/format.h>

#include <string>

namespace gpucast {

StringId StringTable::intern(std::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  const StringId id(static_cast<int64_t>(strings_.size()));
  strings_.emplace_back(text);
  ids_.emplace(strings_.back(), id);
  return id;
}

std::string module_label(const Trace& trace, ModuleId id) {
  if (!id.valid() || id.index() >= trace.modules.size()) return "";
  const Module& module = trace.modules[id.index()];
  const std::string_view name = trace.strings.text(module.name), type = trace.strings.text(module.type);
  if (name.empty()) return type.empty() ? "the model" : fmt::format("{} (the model)", type);
  return type.empty() ? std::string(name) : fmt::format("{} ({})", name, type);
}

}  // namespace gpucast
