#include "src/explain/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "gpucast/history.h"
#include "gpucast/ledger.h"
#include "gpucast/replay.h"
#include "src/base/layer_names.h"
#include "src/explain/free_memory.h"
#include "src/predict/least_capacity.h"
#include "src/predict/place.h"
#include "src/predict/verdict.h"
#include "src/replay/tune.h"

namespace gpucast {
namespace {

constexpr size_t kMostBlocks = 10, kMostHoles = 3, kMostSettings = 3;
constexpr std::string_view kExpandable = "expandable_segments:True";

const Module* module_of(const Trace& trace, ModuleId id) {
  return id.valid() && id.index() < trace.modules.size() ? &trace.modules[id.index()] : nullptr;
}

int depth_of(const Trace& trace, ModuleId id) {
  int depth = 0;
  for (const Module* module = module_of(trace, id); module != nullptr && depth < 100; module = module_of(trace, module->parent)) ++depth;
  return depth;
}

bool is_container(std::string_view type) { return type == "Sequential" || type == "ModuleList" || type == "ModuleDict"; }

std::unordered_set<int32_t> parents_of(const Trace& trace) {
  std::unordered_set<int32_t> out;
  for (const Module& module : trace.modules) out.insert(module.parent.value);
  return out;
}

// The class of modules that a report names an operator with. A leaf module contains little more than the operator, so its parent is named;
// containers are skipped.
std::string enclosing_class(const Trace& trace, const std::unordered_set<int32_t>& parents, ModuleId id) {
  const Module* module = module_of(trace, id);
  if (module != nullptr && !parents.contains(id.value) && module->parent.valid()) module = module_of(trace, module->parent);
  while (module != nullptr && is_container(trace.strings.text(module->type)) && module_of(trace, module->parent) != nullptr) {
    module = module_of(trace, module->parent);
  }
  return module == nullptr ? "" : std::string(trace.strings.text(module->type));
}

std::string operator_name(const Attribution& attribution, const BlockAttribution& block) {
  return block.op.valid() ? attribution.operators[block.op.index()] : "";
}

Place place_of_block(const Analysis& analysis, uint32_t index) {
  const Block& block = analysis.facts->lifetimes.blocks[index];
  if (!block.before_start) return place_of_event(analysis.facts->trace, analysis.facts->attribution, block.alloc_event);
  Place place;
  place.stack = frames_of(analysis.facts->trace, block.stack);
  return place;
}

AlikeBlocks describe_block(const Analysis& analysis, uint32_t index) {
  const BlockAttribution& attribution = analysis.facts->attribution.blocks[index];
  AlikeBlocks out;
  out.size_bytes = analysis.facts->lifetimes.blocks[index].size_bytes;
  out.count = 1;
  out.category = category_name(attribution.category);
  out.op = operator_name(analysis.facts->attribution, attribution);
  out.module = module_label(analysis.facts->trace, attribution.module);
  if (attribution.tensor.valid())
    out.tensor = analysis.facts->trace.strings.text(analysis.facts->trace.tensors[attribution.tensor.index()].name);
  out.before_start = analysis.facts->lifetimes.blocks[index].before_start;
  out.born = place_of_block(analysis, index);
  return out;
}

std::vector<uint32_t> alive_at(const Lifetimes& lifetimes, uint32_t position) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
    if (lifetimes.blocks[i].alive_at(position)) out.push_back(static_cast<uint32_t>(i));
  }
  return out;
}

// ---- memory at the peak ----------------------------------------------------------------------------------------------------

void explain_blocks(const Analysis& analysis, const std::vector<uint32_t>& alive, Explanation* out) {
  struct Group {
    uint32_t first = 0;
    int64_t count = 0;
    std::set<std::string> modules, tensors;
  };
  using Key = std::tuple<int64_t, Category, OperatorId, std::string, std::string>;
  std::map<Key, Group> groups;
  const Trace& trace = analysis.facts->trace;
  for (const uint32_t index : alive) {
    const BlockAttribution& attribution = analysis.facts->attribution.blocks[index];
    const std::string tensor(attribution.tensor.valid() ? trace.strings.text(trace.tensors[attribution.tensor.index()].name)
                                                        : std::string_view());
    const std::string module = module_label(trace, attribution.module);
    Key key(-analysis.facts->lifetimes.blocks[index].size_bytes, attribution.category, attribution.op, without_layer(module),
            without_layer(tensor));
    const auto [at, fresh] = groups.try_emplace(std::move(key), Group{index, 0, {}, {}});
    ++at->second.count;
    at->second.modules.insert(module);
    at->second.tensors.insert(tensor);
  }
  // Groups are in descending order of size. Among equal ones, the one with the larger total comes first.
  std::vector<std::pair<const Key*, Group>> order;
  for (const auto& [key, group] : groups) {
    if (order.size() >= kMostBlocks && std::get<0>(key) != std::get<0>(*order.back().first)) break;
    order.emplace_back(&key, group);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::get<0>(*a.first) != std::get<0>(*b.first) ? std::get<0>(*a.first) < std::get<0>(*b.first) : a.second.count > b.second.count;
  });
  order.resize(std::min(order.size(), kMostBlocks));
  for (const auto& [key, group] : order) {
    AlikeBlocks described = describe_block(analysis, group.first);
    described.count = group.count;
    if (group.modules.size() > 1) described.module = std::get<3>(*key);
    if (group.tensors.size() > 1) described.tensor = std::get<4>(*key);
    out->blocks.push_back(std::move(described));
  }
}

void explain_categories(const Analysis& analysis, const std::vector<uint32_t>& alive, Explanation* out) {
  for (const CategoryLine& line : analysis.prediction.categories) {
    if (line.bytes > 0) out->categories.push_back(line);
  }
  std::stable_sort(out->categories.begin(), out->categories.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (out->categories.empty()) return;
  const std::unordered_set<int32_t> parents = parents_of(analysis.facts->trace);
  std::map<std::pair<std::string, std::string>, int64_t> shares;
  for (const uint32_t index : alive) {
    const BlockAttribution& attribution = analysis.facts->attribution.blocks[index];
    if (category_name(attribution.category) != out->categories.front().name) continue;
    const std::string op = operator_name(analysis.facts->attribution, attribution);
    shares[{op, enclosing_class(analysis.facts->trace, parents, attribution.module)}] += analysis.facts->lifetimes.blocks[index].size_bytes;
  }
  for (const auto& [key, bytes] : shares) out->operators.push_back({key.first, key.second, bytes});
  std::stable_sort(out->operators.begin(), out->operators.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

// ---- reserved but free -------------------------------------------------------------------------------------------------------

void explain_free(const Analysis& analysis, FreeMemory* out) {
  const uint32_t position = fullest_position(analysis);
  if (position > 0) out->place = place_of_event(analysis.facts->trace, analysis.facts->attribution, position - 1);
  std::map<int64_t, SegmentSize> sizes;
  struct Piece {
    int64_t bytes;
    const SegmentFilling* segment;
  };
  std::vector<Piece> pieces;
  const std::vector<SegmentFilling> segments = segments_at(analysis, position);
  const std::vector<Block>& blocks = analysis.facts->lifetimes.blocks;
  for (const SegmentFilling& segment : segments) {
    out->reserved_bytes += segment.bytes;
    if (segment.blocks.empty()) {
      ++out->whole_segments;
      out->whole_bytes += segment.bytes;
      continue;
    }
    if (segment.free.empty()) continue;
    SegmentSize& size = sizes[segment.bytes];
    size.segment_bytes = segment.bytes;
    ++size.segments;
    for (const FreePiece& free : segment.free) {
      ++size.pieces;
      size.free_bytes += free.bytes;
      pieces.push_back({free.bytes, &segment});
    }
  }
  for (const auto& [bytes, size] : sizes) {
    out->pieces += size.pieces;
    out->piece_bytes += size.free_bytes;
    out->sizes.push_back(size);
  }
  out->allocated_bytes = out->reserved_bytes - out->free_bytes();
  std::stable_sort(out->sizes.begin(), out->sizes.end(), [](const auto& a, const auto& b) { return a.free_bytes > b.free_bytes; });
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.bytes > b.bytes; });
  for (size_t i = 0; i < std::min(pieces.size(), kMostHoles); ++i) {
    const SegmentFilling& segment = *pieces[i].segment;
    const uint32_t largest = *std::max_element(segment.blocks.begin(), segment.blocks.end(),
                                               [&](uint32_t a, uint32_t b) { return blocks[a].size_bytes < blocks[b].size_bytes; });
    out->holes.push_back({pieces[i].bytes, segment.bytes, static_cast<int64_t>(segment.blocks.size()), describe_block(analysis, largest)});
  }
}

// ---- allocator settings ------------------------------------------------------------------------------------------------------

Verdict verdict_with(const Analysis& analysis, const History& history, const TriedSetting& tried) {
  History changed = history;
  changed.alloc_conf = tried.alloc_conf;
  const Prediction& p = analysis.prediction;
  MemoryNeed need{tried.peak_allocated_bytes, tried.peak_reserved_bytes, false, false, nullptr};
  need.runs_at = [&](int64_t capacity_bytes) { return runs_at(changed, capacity_bytes, p.gpu_total_bytes); };
  if (p.verdict == Verdict::none) need.nothing_to_judge = p.verdict_reason;
  return judge_need(need, analysis.beside, p.gpu_total_bytes).verdict;
}

// The settings that get a line: the best one, expandable segments, and then others with a gain.
std::vector<TriedSetting> settings_to_show(const Tuning& tuning) {
  std::vector<TriedSetting> out;
  const auto add = [&](const TriedSetting& tried) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const auto& other) { return other.alloc_conf == tried.alloc_conf; });
    if (!known && tried.survives && tried.alloc_conf != tuning.tried[tuning.own].alloc_conf && out.size() < kMostSettings)
      out.push_back(tried);
  };
  if (tuning.best) add(tuning.tried[*tuning.best]);
  for (const TriedSetting& tried : tuning.tried) {
    if (tried.alloc_conf == kExpandable) add(tried);
  }
  for (const TriedSetting& tried : tuning.tried) {
    const bool gains = tried.peak_reserved_bytes + kLeastGainBytes <= tuning.tried[tuning.own].peak_reserved_bytes;
    if (gains && tried.alloc_conf.find(kExpandable) == std::string::npos) add(tried);
  }
  return out;
}

void explain_settings(const Analysis& analysis, Explanation* out) {
  const History& history = analysis.facts->history;
  if (history.ops.empty()) return;
  const Prediction& p = analysis.prediction;
  ReplaySettings own;
  own.alloc_conf = history.alloc_conf;
  if (p.oom && p.oom->ended_run) {
    OutOfMemoryExplained explained;
    if (!analysis.facts->attribution.spans.empty())
      explained.op =
          analysis.facts->trace.strings.text(span_of_event(analysis.facts->attribution, static_cast<uint32_t>(p.oom->place.event)).node);
    explained.capacity_bytes = analysis.facts->trace.header.enforce_capacity ? analysis.facts->trace.header.capacity_bytes
                                                                             : out->free.reserved_bytes + p.oom->free_bytes;
    for (const Hole& hole : out->free.holes) explained.largest_free_block_bytes = std::max(explained.largest_free_block_bytes, hole.bytes);
    own.capacity_bytes = explained.capacity_bytes;
    own.device_total_bytes = history.device_total_bytes;
    const Tuning tuning = tune(history, own);
    explained.settings_tried = static_cast<int64_t>(tuning.tried.size()) - 1;
    for (const TriedSetting& tried : tuning.tried) {
      if (tried.survives && tried.alloc_conf != own.alloc_conf) explained.gets_past.push_back(tried.alloc_conf);
    }
    out->out_of_memory = std::move(explained);
    return;
  }
  const Tuning tuning = tune(history, own);
  out->settings_tried = static_cast<int64_t>(tuning.tried.size()) - 1;
  for (const TriedSetting& tried : settings_to_show(tuning)) {
    Remedy remedy;
    remedy.name = tried.alloc_conf.empty() ? "the default settings" : tried.alloc_conf;
    remedy.what = tried.alloc_conf.empty() ? "no PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF=" + tried.alloc_conf;
    remedy.computed = true;
    remedy.peak_allocated_bytes = tried.peak_allocated_bytes;
    remedy.peak_reserved_bytes = tried.peak_reserved_bytes;
    remedy.saved_allocated_bytes = p.peak_allocated.bytes - tried.peak_allocated_bytes;
    remedy.saved_reserved_bytes = p.peak_reserved.bytes - tried.peak_reserved_bytes;
    remedy.verdict = verdict_with(analysis, history, tried);
    out->remedies.push_back(std::move(remedy));
  }
}

// ---- what-ifs ------------------------------------------------------------------------------------------------------------------

// Whether gradients stay alive after the script's zero_grad.
bool zero_grad_keeps_gradients(const Analysis& analysis) {
  const Trace& trace = analysis.facts->trace;
  const bool zeroes = std::any_of(trace.marks.begin(), trace.marks.end(), [](const Mark& mark) {
    return mark.kind == MarkKind::phase_begin && mark.phase == MarkedPhase::zero_grad;
  });
  if (!zeroes) return false;
  bool any = false;
  for (size_t i = 0; i < analysis.facts->lifetimes.blocks.size(); ++i) {
    if (analysis.facts->attribution.blocks[i].category != Category::gradients) continue;
    any = true;
    const uint32_t freed = analysis.facts->lifetimes.blocks[i].free_event;
    if (freed != Block::kNever && span_of_event(analysis.facts->attribution, freed).phase == Phase::zero_grad) return false;
  }
  return any;
}

bool optimizer_step_has_temporaries(const Analysis& analysis) {
  const std::vector<BlockAttribution>& blocks = analysis.facts->attribution.blocks;
  return std::any_of(blocks.begin(), blocks.end(), [](const BlockAttribution& block) {
    return block.phase == Phase::optimizer_step && block.category == Category::temporaries;
  });
}

constexpr int64_t kLargeLoss_percent = 2;  // of the peak: probabilities of a smaller size are not worth chunks
constexpr double kMostFlops = 0.5;         // in half precision: the script runs in it

bool multiplies(const Operation& operation) {
  return operation.kind == OperationKind::gemm || operation.kind == OperationKind::convolution ||
         operation.kind == OperationKind::attention;
}

bool computes_in_half_precision(const Analysis& analysis) {
  if (!analysis.facts->step) return false;
  double all = 0, half = 0;
  for (const StepOperation& operation : analysis.facts->step->operations) {
    const Operation& shape = analysis.facts->step->shapes[operation.shape];
    if (!multiplies(shape)) continue;
    all += shape.flops;
    if (shape.precision == Precision::bf16 || shape.precision == Precision::fp16) half += shape.flops;
  }
  return half > kMostFlops * all;
}

}  // namespace

bool has_large_loss(const Analysis& analysis) {
  const Facts& facts = *analysis.facts;
  if (!facts.step) return false;
  return std::any_of(facts.step->operations.begin(), facts.step->operations.end(), [&](const StepOperation& operation) {
    if (operation.name.find("log_softmax") == std::string::npos) return false;
    const Operation& shape = facts.step->shapes[operation.shape];
    return shape.bytes_written * 100 > analysis.prediction.peak_reserved.bytes * kLargeLoss_percent;
  });
}

const char* remedy_by_name(RemedyBy by) {
  switch (by) {
    case RemedyBy::replay:
      return "replay";
    case RemedyBy::rerun:
      return "rerun";
    case RemedyBy::profile:
      return "profile";
  }
  return "";
}

std::string class_to_checkpoint(const Analysis& analysis) {
  const Trace& trace = analysis.facts->trace;
  struct Class {
    std::unordered_set<int32_t> modules;
    int64_t bytes = 0;
    int depth = INT_MAX;  // of the outermost module
  };
  std::map<std::string, Class> classes;
  const std::unordered_set<int32_t> parents = parents_of(trace);
  for (const uint32_t index : alive_at(analysis.facts->lifetimes, analysis.facts->lifetimes.peak_allocated.position())) {
    const BlockAttribution& block = analysis.facts->attribution.blocks[index];
    if (block.category != Category::activations) continue;
    std::set<std::string> counted;
    for (ModuleId id = block.module; module_of(trace, id) != nullptr && counted.size() < 100; id = trace.modules[id.index()].parent) {
      if (!parents.contains(id.value)) continue;
      const std::string type(trace.strings.text(trace.modules[id.index()].type));
      if (type == "ModuleList" || type == "ModuleDict") continue;  // never called
      Class& seen = classes[type];
      if (seen.modules.insert(id.value).second) seen.depth = std::min(seen.depth, depth_of(trace, id));
      if (counted.insert(type).second) seen.bytes += analysis.facts->lifetimes.blocks[index].size_bytes;
    }
  }
  std::string best;
  for (const auto& [type, seen] : classes) {
    if (seen.modules.size() < 2 || seen.bytes == 0) continue;
    const auto rank = [&](const Class& c) { return std::make_pair(c.bytes, c.depth); };
    if (best.empty() || rank(seen) > rank(classes[best])) best = type;
  }
  return best;
}

std::vector<std::string> what_ifs_to_try(const Analysis& analysis) {
  if (analysis.prediction.source != "vgpu" || analysis.prediction.command.empty()) return {};
  std::vector<std::string> out;
  if (zero_grad_keeps_gradients(analysis)) out.emplace_back("set-to-none");
  if (optimizer_step_has_temporaries(analysis)) out.emplace_back("no-foreach");
  out.emplace_back("half-batch");
  out.emplace_back("micro-batch:2");
  if (has_large_loss(analysis)) out.emplace_back("chunked-loss:8");
  const std::string type = class_to_checkpoint(analysis);
  if (!type.empty()) out.push_back("checkpoint:" + type);
  if (!computes_in_half_precision(analysis)) out.emplace_back("bf16");
  // In a capture of a what-if, a change that was already made is not tried again.
  for (const WhatIf& what_if : analysis.prediction.what_if) std::erase(out, what_if.name);
  return out;
}

std::string what_if_words(const std::string& name) {
  if (name == "set-to-none") return "zero_grad(set_to_none=True)";
  if (name == "no-foreach") return "the optimizer with foreach=False";
  if (name == "half-batch") return "half the batch";
  if (name == "micro-batch:2") return "the batch in 2 parts, gradients accumulated";
  if (name == "chunked-loss:8") return "logits and loss in 8 chunks";
  if (name == "bf16") return "autocast with bfloat16";
  if (name.starts_with("checkpoint:")) return fmt::format("checkpoint each {}", name.substr(name.find(':') + 1));
  return name;
}

Remedy compare_remedy(RemedyBy by, const std::string& name, const Prediction& without, const Prediction& with) {
  Remedy remedy;
  remedy.by = by;
  remedy.name = name;
  remedy.what = what_if_words(name);
  remedy.computed = true;
  remedy.peak_allocated_bytes = with.peak_allocated.bytes;
  remedy.peak_reserved_bytes = with.peak_reserved.bytes;
  remedy.saved_allocated_bytes = without.peak_allocated.bytes - with.peak_allocated.bytes;
  remedy.saved_reserved_bytes = without.peak_reserved.bytes - with.peak_reserved.bytes;
  remedy.verdict = with.verdict;
  return remedy;
}

void sort_remedies(std::vector<Remedy>* remedies) {
  std::stable_sort(remedies->begin(), remedies->end(), [](const Remedy& a, const Remedy& b) {
    return std::make_pair(!a.computed, -a.saved_reserved_bytes) < std::make_pair(!b.computed, -b.saved_reserved_bytes);
  });
}

Explanation explain(const Analysis& analysis) {
  Explanation out;
  out.prediction = analysis.prediction;
  out.run_s = analysis.facts->trace.header.run_s;
  if (analysis.facts->lifetimes.allocated.empty()) return out;
  out.folder = analysis.facts->trace.header.folder;
  const Peak& peak = analysis.facts->lifetimes.peak_allocated;
  const std::vector<uint32_t> alive = alive_at(analysis.facts->lifetimes, peak.position());
  const std::vector<Block>& blocks = analysis.facts->lifetimes.blocks;
  const auto last = std::find_if(alive.begin(), alive.end(), [&](uint32_t index) {
    return !peak.before_start && !blocks[index].before_start && blocks[index].alloc_event == peak.event;
  });
  if (last != alive.end()) out.last = describe_block(analysis, *last);
  explain_categories(analysis, alive, &out);
  explain_blocks(analysis, alive, &out);
  explain_free(analysis, &out.free);
  explain_settings(analysis, &out);
  sort_remedies(&out.remedies);
  return out;
}

}  // namespace gpucast
