#include "src/explain/what_if.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/what_if.h"
#include "src/base/batch_option.h"
#include "src/base/to_number.h"

namespace gpucast {
namespace {

// "0-3,7"
bool is_list_of_numbers(std::string_view text) {
  bool digit = false;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (!digit || (c != ',' && c != '-'))) return false;
    digit = is_digit;
  }
  return digit;
}

// What an argument must be; "": it is good.
std::string problem_of_argument(const WhatIfKind& kind, const std::string& name) {
  const std::string_view takes = kind.argument;
  const bool colon = name.find(':') != std::string::npos;
  const std::string argument = what_if_argument(name);
  if (takes.empty()) return colon ? "takes nothing after its name" : "";
  if (takes == "N") return to_number<int64_t>(argument).value_or(0) > 0 ? "" : "must have a whole number above 0";
  if (takes == "K") return to_number<int64_t>(argument).value_or(0) > 1 ? "" : "must have a whole number above 1";
  if (takes == "[K]") return !colon || to_number<int64_t>(argument).value_or(0) > 1 ? "" : "must have a whole number above 1, or none";
  if (takes == "KERNEL") {
    static constexpr std::string_view kKernels[] = {"flash", "efficient", "cudnn", "math"};
    const bool known = std::find(std::begin(kKernels), std::end(kKernels), argument) != std::end(kKernels);
    return known ? "" : "must name flash, efficient, cudnn or math";
  }
  const size_t equals = argument.find('=');
  if (equals != std::string::npos && !is_list_of_numbers(std::string_view(argument).substr(equals + 1)))
    return "must have numbers of modules after '=', such as Block=0-3,7";
  return argument.empty() || equals == 0 ? "must name modules" : "";
}

}  // namespace

const std::vector<WhatIfKind>& what_if_kinds() {
  static const std::vector<WhatIfKind> kKinds = {
      {"set-to-none", "", "zero_grad sets gradients to None"},
      {"no-foreach", "", "optimizers with foreach and fused off"},
      {"foreach", "", "optimizers with foreach on"},
      {"fused", "", "optimizers with fused on"},
      {kHalfBatch, "", "half the batch: the command's batch option, else of each DataLoader", true},
      {"batch", "N", "N as the batch size of the first DataLoader, and of others with the same", true},
      {kMicroBatch, "K", "the batch in K parts, whose gradients are added up"},
      {"checkpoint", "MODULE", "modules of this class or path recomputed in backward"},
      {"attention", "KERNEL", "one kernel of scaled_dot_product_attention: flash, efficient, cudnn or math"},
      {kCompile, "", "the model compiled by torch.compile"},
      {"bf16", "", "forward and loss under autocast with bfloat16", true},
      {"bf16-weights", "", "the model's weights in bfloat16", true},
      {"chunked-loss", "K", "logits and cross entropy in K chunks, recomputed in backward"},
      {"8bit-optimizer", "", "bitsandbytes' AdamW8bit instead of Adam and AdamW", true},
      {"factored-optimizer", "", "Adafactor instead of Adam and AdamW", true},
      {"optimizer-in-backward", "", "each parameter stepped in backward, its gradient dropped"},
      {"offload-optimizer", "", "the optimizer's state in the host's memory"},
      {kFsdp, "[K]", "the model of DistributedDataParallel sharded over K ranks by fully_shard; without K: over all"},
      {kMaxLength, "N", "each batch of texts padded to N tokens", true},
  };
  return kKinds;
}

std::string with_argument(const WhatIfKind& kind) {
  const std::string argument = kind.argument;
  if (argument.starts_with('[')) return fmt::format("{}[:{}", kind.name, argument.substr(1));
  return argument.empty() ? kind.name : fmt::format("{}:{}", kind.name, argument);
}

std::string what_if_kind(const std::string& name) { return name.substr(0, name.find(':')); }

std::string what_if_argument(const std::string& name) {
  const size_t colon = name.find(':');
  return colon == std::string::npos ? "" : name.substr(colon + 1);
}

bool changes_mathematics(const std::string& name) {
  const std::vector<WhatIfKind>& kinds = what_if_kinds();
  const std::string kind = what_if_kind(name);
  return std::any_of(kinds.begin(), kinds.end(), [&](const WhatIfKind& known) { return kind == known.name && known.changes_mathematics; });
}

void check_what_if(const std::string& name) {
  const std::string kind = what_if_kind(name);
  std::vector<std::string> names;
  std::string all;
  for (const WhatIfKind& known : what_if_kinds()) {
    if (kind == known.name) {
      const std::string problem = problem_of_argument(known, name);
      if (problem.empty()) return;
      throw Error(fmt::format("the what-if '{}' {}", kind, problem), "--what-if " + name,
                  fmt::format("write --what-if {}", with_argument(known)));
    }
    names.emplace_back(known.name);
    all += (all.empty() ? "" : ", ") + with_argument(known);
  }
  const auto near = did_you_mean(kind, names);
  throw Error(fmt::format("there is no what-if '{}'", kind), "--what-if " + name,
              near ? fmt::format("did you mean {}? There are {}", *near, all) : "there are " + all);
}

std::optional<DividedCommand> divide_batch(const std::vector<std::string>& command, int64_t parts, bool exactly) {
  DividedCommand out{command, ""};
  const auto divided = [&](std::string_view option, std::string_view text) -> std::string {
    const auto number = to_number<int64_t>(text);
    if (!number || *number < parts || (exactly && *number % parts != 0)) return "";
    out.did += fmt::format("{}{} {} became {}", out.did.empty() ? "" : ", ", option, *number, *number / parts);
    return std::to_string(*number / parts);
  };
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    const size_t equals = word.find('=');
    if (equals != std::string::npos) {
      const std::string option = word.substr(0, equals);
      const std::string part = is_batch_word(option) ? divided(option, std::string_view(word).substr(equals + 1)) : "";
      if (!part.empty()) out.command[i] = fmt::format("{}={}", option, part);
    } else if (i + 1 < command.size() && is_batch_word(word)) {
      const std::string part = divided(word, command[i + 1]);
      if (!part.empty()) out.command[i + 1] = part;
    }
  }
  if (out.did.empty()) return std::nullopt;
  return out;
}

ChangedCommand change_command(const std::vector<std::string>& command, const std::vector<std::string>& what_ifs) {
  ChangedCommand out{command, {}};
  for (const std::string& name : what_ifs) {
    check_what_if(name);
    const bool in_parts = what_if_kind(name) == kMicroBatch;
    WhatIf& what_if = out.what_ifs.emplace_back(WhatIf{name, "", false});
    if (!in_parts && name != kHalfBatch) continue;
    const int64_t parts = in_parts ? to_number<int64_t>(what_if_argument(name)).value() : 2;
    const auto divided = divide_batch(out.command, parts, in_parts);
    if (!divided) continue;
    out.command = divided->command;
    what_if.did = divided->did;
    what_if.acted = !in_parts;  // the gradients of the parts are still to be added up
  }
  return out;
}

}  // namespace gpucast
