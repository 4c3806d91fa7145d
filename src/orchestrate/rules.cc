#include "src/orchestrate/rules.h"

#include <algorithm>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/orchestrate/method_dnnmem.h"
#include "src/orchestrate/method_veritasest.h"

namespace gpucast {

const std::vector<Rule>& all_rules() {
  static const std::vector<Rule> kRules = {
      {"host", "data that stays in the host's memory is left out", true, drop_host_data},
      {"model", "parameters and buffers are on the device from the move of the model on", true, place_model},
      {"batch", "a batch lives on the device from its loading on", true, place_batch},
      {"filter", "blocks that were not made by a module's operator are left out (xMem only)", true, drop_outside_operators},
      {"gradients", "gradients live until zero_grad", true, place_gradients},
      {"optimizer", "optimizer state is made by the first step and stays", true, place_optimizer_state},
      {"kernel_scratch", "scratch space of the CPU's kernels is left out", false, drop_kernel_scratch},
      {"foreach", "the optimizer works on all parameters at once", false, use_foreach},
      {"attention", "scaled dot product attention by CUDA's kernels", false, use_cuda_attention},
      {"rnn", "recurrent layers by cuDNN", false, use_cudnn_rnn},
      {"mixed_precision", "autocast, or a model in lower precision (--dtype, --amp)", false, use_lower_precision},
      {"dropout", "dropout keeps a mask of one byte an element", false, use_cuda_dropout},
      {"cuda_scratch", "temporaries that only CUDA's kernels have", false, add_cuda_scratch},
      {"cublas", "workspaces of cuBLAS and cuBLASLt", false, add_cublas_workspaces},
      {"reductions", "buffers of sums over many rows", false, add_reduction_buffers},
      {"batch_size", "another batch size than the traced one (--batch)", false, scale_batch},
  };
  return kRules;
}

std::vector<Rule> method_rules(const std::string& method) {
  if (method == "veritasest") return veritasest_rules();
  if (method == "dnnmem") return dnnmem_rules();
  if (method != "gpucast" && method != "xmem") {
    const auto near = did_you_mean(method, {"gpucast", "xmem", "veritasest", "dnnmem"});
    throw Error("there is no method named \"" + method + "\"" + (near ? ", did you mean \"" + *near + "\"?" : ""), "--method",
                "the methods are gpucast, xmem, veritasest, dnnmem");
  }
  std::vector<Rule> rules = all_rules();
  std::erase_if(rules, [&](const Rule& rule) { return method == "xmem" ? !rule.paper : std::string_view(rule.name) == "filter"; });
  return rules;
}

namespace {

// The differences between two states of the sequence.
ProfileRuleLine effect_of(const Rule& rule, const std::vector<GpuBlock>& before, const std::vector<GpuBlock>& after) {
  ProfileRuleLine out;
  out.name = rule.name;
  out.what = rule.what;
  for (size_t i = 0; i < after.size(); ++i) {
    if (i >= before.size()) {
      ++out.added_blocks;
      out.added_bytes += after[i].size_bytes;
      continue;
    }
    if (before[i].kept() && !after[i].kept()) {
      ++out.dropped_blocks;
      out.dropped_bytes += before[i].size_bytes;
    } else if (after[i].kept() &&
               (before[i].size_bytes != after[i].size_bytes || before[i].alloc != after[i].alloc || before[i].free != after[i].free)) {
      ++out.changed_blocks;
    }
  }
  return out;
}

}  // namespace

std::vector<ProfileRuleLine> apply_rules(const ProfileFacts& facts, const OrchestrateOptions& options, Sequence* sequence) {
  std::vector<std::string> names;
  const std::vector<Rule> rules = method_rules(options.method);
  for (const Rule& rule : all_rules()) names.emplace_back(rule.name);
  for (const Rule& rule : rules) names.emplace_back(rule.name);
  for (const std::string& without : options.without) {
    if (std::find(names.begin(), names.end(), without) != names.end()) continue;
    const auto near = did_you_mean(without, names);
    std::string list;
    for (const Rule& rule : rules) list += (list.empty() ? "" : ", ") + std::string(rule.name);
    throw Error("there is no rule named \"" + without + "\"" + (near ? ", did you mean \"" + *near + "\"?" : ""), "--without",
                "the rules are " + list);
  }
  std::vector<ProfileRuleLine> effects;
  for (const Rule& rule : rules) {
    if (std::find(options.without.begin(), options.without.end(), rule.name) != options.without.end()) continue;
    const std::vector<GpuBlock> before = sequence->blocks;
    rule.apply(facts, options, sequence);
    effects.push_back(effect_of(rule, before, sequence->blocks));
  }
  return effects;
}

}  // namespace gpucast
