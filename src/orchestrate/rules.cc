#include "src/orchestrate/rules.h"

#include <algorithm>

#include "gpucast/error.h"
#include "gpucast/gpu.h"

namespace gpucast {

const std::vector<Rule>& all_rules() {
  static const std::vector<Rule> kRules = {
      {"host", "what stays in the host's memory is left out", true, drop_host_data},
      {"model", "parameters and buffers are on the device from the move of the model on", true, place_model},
      {"batch", "a batch lives on the device from its loading on", true, place_batch},
      {"filter", "blocks that no operator of a module made are left out (xMem only)", true, drop_outside_operators},
      {"gradients", "gradients live until zero_grad", true, place_gradients},
      {"optimizer", "optimizer state is made by the first step and stays", true, place_optimizer_state},
      {"kernel_scratch", "scratch space of the CPU's kernels is left out", false, drop_kernel_scratch},
      {"foreach", "the optimizer works on all parameters at once", false, use_foreach},
      {"attention", "scaled dot product attention by CUDA's kernels", false, use_cuda_attention},
      {"dropout", "dropout keeps a mask of one byte an element", false, use_cuda_dropout},
      {"cublas", "workspaces of cuBLAS and cuBLASLt", false, add_cublas_workspaces},
  };
  return kRules;
}

namespace {


// What changed between two states of the sequence.
RuleEffect effect_of(const char* name, const std::vector<GpuBlock>& before, const std::vector<GpuBlock>& after) {
  RuleEffect out;
  out.name = name;
  for (size_t i = 0; i < after.size(); ++i) {
    if (i >= before.size()) {
      ++out.added_blocks;
      out.added_bytes += after[i].size_bytes;
      continue;
    }
    if (before[i].kept() && !after[i].kept()) {
      ++out.dropped_blocks;
      out.dropped_bytes += before[i].size_bytes;
    } else if (after[i].kept() && (before[i].size_bytes != after[i].size_bytes || before[i].alloc != after[i].alloc || before[i].free != after[i].free)) {
      ++out.changed_blocks;
    }
  }
  return out;
}

}  // namespace

std::vector<RuleEffect> apply_rules(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence) {
  std::vector<std::string> names;
  for (const Rule& rule : all_rules()) names.emplace_back(rule.name);
  for (const std::string& without : options.without) {
    if (std::find(names.begin(), names.end(), without) != names.end()) continue;
    const auto near = did_you_mean(without, names);
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    throw Error("there is no rule named \"" + without + "\"" + (near ? ", did you mean \"" + *near + "\"?" : ""), "--without", "the rules are " + list);
  }
  const bool xmem = options.method == "xmem";
  std::vector<RuleEffect> effects;
  for (const Rule& rule : all_rules()) {
    const bool paper_only = std::string_view(rule.name) == "filter";
    if (xmem ? !rule.paper : paper_only) continue;
    if (std::find(options.without.begin(), options.without.end(), rule.name) != options.without.end()) continue;
    const std::vector<GpuBlock> before = sequence->blocks;
    rule.apply(facts, options, sequence);
    effects.push_back(effect_of(rule.name, before, sequence->blocks));
  }
  return effects;
}

}  // namespace gpucast
