#include "src/attribution/operators.h"

#include <fmt/core.h>

#include <map>
#include <unordered_map>
#include <utility>

namespace gpucast {
namespace {

constexpr std::string_view kNoFile = "??";  // the file in frames of operators, and in C++ frames of snapshots

// The part after the last "torch/" of a path into PyTorch; "" for other files.
std::string_view inside_torch(std::string_view file) {
  const size_t at = file.rfind("/torch/");
  if (at != std::string_view::npos) return file.substr(at + 7);
  return file.starts_with("torch/") ? file.substr(6) : std::string_view();
}

std::string_view base_name(std::string_view file) {
  const size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? file : file.substr(slash + 1);
}

// The path inside a library's package; for a program, the file's name.
std::string_view short_path(std::string_view file) {
  constexpr std::string_view kPackages = "site-packages/";
  const size_t at = file.rfind(kPackages);
  return at == std::string_view::npos ? base_name(file) : file.substr(at + kPackages.size());
}

std::string_view without_suffix(std::string_view file) { return file.ends_with(".py") ? file.substr(0, file.size() - 3) : file; }

class Namer {
 public:
  explicit Namer(const Trace& trace) : trace_(trace) {}

  // `module`: the innermost one at the allocation.
  std::string name(StackId id, ModuleId module) const {
    if (!id.valid() || id.index() >= trace_.stacks.size()) return "";
    const Stack& stack = trace_.stacks[id.index()];
    std::string_view op;
    for (uint32_t i = stack.first_frame; i < stack.first_frame + stack.frame_count; ++i) {
      const Frame& frame = trace_.frames[trace_.stack_frames[i].index()];
      const std::string_view file = trace_.strings.text(frame.file), function = trace_.strings.text(frame.function);
      if (file == kNoFile || file.empty()) {
        if (function.starts_with("aten::")) op = function;
        continue;
      }
      if (!op.empty()) break;
      const std::string_view torch = inside_torch(file);
      if (torch == "nn/functional.py") return fmt::format("nn.functional.{}", function);
      if (torch == "nn/modules/module.py" || torch == "nn/modules/container.py") continue;  // they only call other code
      if (torch.starts_with("nn/modules/")) {
        return module.valid() ? fmt::format("nn.{}", trace_.strings.text(trace_.modules[module.index()].type))
                              : fmt::format("nn.{}.{}", without_suffix(base_name(file)), function);
      }
      if (torch.starts_with("optim/")) return fmt::format("optim.{}", without_suffix(torch.substr(6)));
      if (torch.starts_with("nn/init.py")) return fmt::format("nn.init.{}", function);
      if (torch.empty() && file.find('<') == std::string_view::npos && file.ends_with(".py")) {
        return fmt::format("{}:{} {}", short_path(file), frame.line, function);
      }
    }
    return std::string(op);
  }

 private:
  const Trace& trace_;
};

}  // namespace

void name_operators(const Trace& trace, const Lifetimes& lifetimes, Attribution* attribution) {
  std::unordered_map<std::string, OperatorId> ids;
  std::map<std::pair<StackId, ModuleId>, OperatorId> of_stack;
  std::unordered_map<int32_t, OperatorId> of_node;
  const auto add = [&](std::string name) {
    if (name.empty()) return OperatorId();
    const auto [at, fresh] = ids.try_emplace(std::move(name), OperatorId(static_cast<int64_t>(attribution->operators.size())));
    if (fresh) attribution->operators.push_back(at->first);
    return at->second;
  };
  const Namer namer(trace);
  size_t span = 0;
  for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
    const Block& block = lifetimes.blocks[i];
    while (span + 1 < attribution->spans.size() && attribution->spans[span].end <= block.alloc_event) ++span;
    BlockAttribution& named = attribution->blocks[i];
    const StringId node = block.before_start ? StringId() : attribution->spans[span].node;
    if (node.valid()) {
      const auto [at, fresh] = of_node.try_emplace(node.value);
      if (fresh) at->second = add(std::string(trace.strings.text(node)));
      named.op = at->second;
      continue;
    }
    const auto [at, fresh] = of_stack.try_emplace({block.stack, named.module});
    if (fresh) at->second = add(namer.name(block.stack, named.module));
    named.op = at->second;
  }
}

}  // namespace gpucast
