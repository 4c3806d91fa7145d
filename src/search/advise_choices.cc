#include "src/search/advise_choices.h"

#include <fmt/core.h>

#include <algorithm>

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/base/links.h"
#include "src/explain/explain.h"
#include "src/explain/what_if.h"

namespace gpucast::search {
namespace {

constexpr int64_t kMostParts = 32;
constexpr double kSmallOptimizer = 0.01;  // of the step's time and of the weights' memory: as little as two runs differ

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The kernels of scaled_dot_product_attention to try: those that the step does not use.
std::vector<std::string> other_attention_kernels(const Facts& facts) {
  bool attends = false, flash = false, efficient = false;
  for (const StepOperation& operation : facts.step ? facts.step->operations : std::vector<StepOperation>()) {
    if (operation.name.find("scaled_dot_product") == std::string::npos) continue;
    attends = true;
    flash = flash || operation.name.find("flash") != std::string::npos;
    efficient = efficient || operation.name.find("efficient") != std::string::npos;
  }
  std::vector<std::string> out;
  if (attends && !flash) out.emplace_back("attention:flash");
  if (attends && !efficient) out.emplace_back("attention:efficient");
  return out;
}

int64_t bytes_of(const Prediction& prediction, std::initializer_list<Category> categories) {
  int64_t out = 0;
  for (const CategoryLine& line : prediction.categories) {
    for (const Category category : categories) out += line.name == category_name(category) ? line.bytes : 0;
  }
  return out;
}

// Such as in a LoRA. Every configuration has the weights, so less than 1 % of them is less than 1 % of its memory.
bool optimizer_is_small(const Prediction& prediction, double optimizer_share) {
  const int64_t weights_bytes = bytes_of(prediction, {Category::parameters});
  const int64_t optimizer_bytes = bytes_of(prediction, {Category::gradients, Category::optimizer_state});
  return optimizer_share < kSmallOptimizer && static_cast<double>(optimizer_bytes) < kSmallOptimizer * static_cast<double>(weights_bytes);
}

// fully_shard over all ranks, and over groups of ranks of one node, for a model that DistributedDataParallel holds whole.
std::vector<std::string> degrees_of_sharding(const Trace& trace) {
  const auto is_replicated = [&](const Module& module) { return trace.strings.text(module.type) == "DistributedDataParallel"; };
  const int64_t ranks = trace.process.world_size, of_node = trace.node_ranks > 0 ? trace.node_ranks : kUsualNodeCards;
  std::vector<std::string> out;
  if (ranks < 2 || std::ranges::none_of(trace.modules, is_replicated)) return out;
  out.emplace_back(kFsdp);
  for (int64_t degree = ranks / 2; degree > 1; --degree) {
    if (ranks % degree == 0 && degree <= of_node) out.push_back(fmt::format("{}:{}", kFsdp, degree));
  }
  return out;
}

std::vector<std::string> parts_of_batch(int64_t samples) {
  std::vector<std::string> out;
  for (int64_t parts = 2; parts <= std::min(samples, kMostParts); parts *= 2) {
    if (samples % parts == 0) out.push_back(fmt::format("{}:{}", kMicroBatch, parts));
  }
  return out;
}

}  // namespace

std::vector<Axis> axes_of(const Analysis& as_it_is, int64_t samples, double optimizer_share, const std::vector<std::string>& allowed,
                          std::vector<LeftOut>* left_out) {
  const std::vector<std::string> likely = what_ifs_to_try(as_it_is);
  std::vector<Axis> axes;
  const auto add = [&](const char* name, std::vector<std::string> options) {
    std::erase_if(options, [&](const std::string& option) {
      const std::string kind = what_if_kind(option);
      if (has(allowed, kind)) return false;
      if (kind == kCompile) {
        left_out->push_back({option, "its runs take minutes, since the model is compiled; to try it: --allow compile"});
        return true;
      }
      if (!changes_mathematics(option)) return false;
      left_out->push_back({option, fmt::format("it changes the mathematics; to try it: --allow {}", kind)});
      return true;
    });
    if (options.empty()) return;
    options.insert(options.begin(), "");
    axes.push_back({name, std::move(options)});
  };
  std::vector<std::string> batch = parts_of_batch(samples);
  if (has(allowed, kHalfBatch)) batch.emplace_back(kHalfBatch);
  add("batch", std::move(batch));
  add("sharding", degrees_of_sharding(as_it_is.facts->trace));
  std::vector<std::string> optimizer = {"fused", "optimizer-in-backward", "offload-optimizer", "8bit-optimizer", "factored-optimizer"};
  if (has(likely, "no-foreach")) optimizer.insert(optimizer.begin(), "no-foreach");
  const std::string type = class_to_checkpoint(as_it_is);
  if (!type.empty()) add("checkpoint", {"checkpoint:" + type});
  if (optimizer_is_small(as_it_is.prediction, optimizer_share)) {
    left_out->push_back({"changes of the optimizer",
                         "its step is less than 1 % of the time, and gradients with its state are less than 1 % of the weights' memory"});
  } else {
    add("optimizer", std::move(optimizer));
  }
  if (has(likely, "set-to-none")) add("gradients", {"set-to-none"});
  add("attention", other_attention_kernels(*as_it_is.facts));
  add("precision", {"bf16", "bf16-weights"});
  if (has_large_loss(as_it_is)) add("loss", {"chunked-loss:8"});
  add("compile", {kCompile});
  return axes;
}

void check_allowed(const std::vector<std::string>& allowed) {
  for (const std::string& name : allowed) {
    const auto& kinds = what_if_kinds();
    const bool known = std::any_of(kinds.begin(), kinds.end(), [&](const WhatIfKind& kind) { return name == kind.name; });
    if (!known) check_what_if(name);  // throws with a "did you mean"
    if (name != kCompile && (!changes_mathematics(name) || name == kMaxLength)) {
      std::string all = kCompile;
      for (const WhatIfKind& kind : kinds) {
        if (kind.changes_mathematics && kind.name != std::string(kMaxLength)) all += "," + std::string(kind.name);
      }
      throw Error(fmt::format("--allow: '{}' is no change that advise tries only if asked", name), "", "name some of " + all);
    }
  }
}

}  // namespace gpucast::search
