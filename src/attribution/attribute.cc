#include "src/attribution/attribute.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "src/attribution/communication.h"
#include "src/attribution/open_marks.h"
#include "src/attribution/operators.h"

namespace gpucast {
namespace {

// ---- positions of marks --------------------------------------------------------------------------------------------------

struct PlacedMark {
  uint32_t position = 0;
  const Mark* mark = nullptr;
};

// A mark with the counters (a, f) lies after both the a-th alloc and the f-th free_requested.
class MarkPlacer {
 public:
  explicit MarkPlacer(const std::vector<AllocatorEvent>& events) {
    for (uint32_t i = 0; i < events.size(); ++i) {
      if (events[i].kind == EventKind::alloc) after_alloc_.push_back(i + 1);
      if (events[i].kind == EventKind::free_requested) after_free_.push_back(i + 1);
    }
  }

  // `exact` is false when no position has these counters.
  uint32_t position_of(const Mark& mark, bool* exact) const {
    const uint32_t position = std::max(position_after(after_alloc_, mark.allocs), position_after(after_free_, mark.frees));
    *exact = mark.allocs < count(after_alloc_) && mark.frees < count(after_free_) &&
             (mark.allocs + 1 >= count(after_alloc_) || position_after(after_alloc_, mark.allocs + 1) > position) &&
             (mark.frees + 1 >= count(after_free_) || position_after(after_free_, mark.frees + 1) > position);
    return position;
  }

 private:
  static int64_t count(const std::vector<uint32_t>& positions) { return static_cast<int64_t>(positions.size()); }
  static uint32_t position_after(const std::vector<uint32_t>& positions, int64_t n) {
    return positions[static_cast<size_t>(std::min<int64_t>(n, count(positions) - 1))];
  }

  std::vector<uint32_t> after_alloc_ = {0}, after_free_ = {0};  // [n]: the position after the n-th
};

std::vector<PlacedMark> place_marks(const Trace& trace, Problems* problems) {
  const MarkPlacer placer(trace.events);
  std::vector<PlacedMark> placed;
  placed.reserve(trace.marks.size());
  for (const Mark& mark : trace.marks) {
    bool exact = false;
    placed.push_back({placer.position_of(mark, &exact), &mark});
    if (!exact)
      problems->add(Problem::mark_misplaced, fmt::format("mark {} says {} allocs, {} frees", mark.sequence, mark.allocs, mark.frees));
  }
  // Marks of several threads may be slightly out of order.
  std::stable_sort(placed.begin(), placed.end(), [](const PlacedMark& a, const PlacedMark& b) { return a.position < b.position; });
  return placed;
}

// ---- marks -> spans -------------------------------------------------------------------------------------------------------

// Positions that the category rules need in addition to the spans.
struct Landmarks {
  std::vector<uint32_t> backward_begins;  // positions, ascending
  std::vector<uint32_t> outer_forward_ends;
  std::vector<uint32_t> evaluation_ends;
  std::vector<uint32_t> node_begins;                          // begins of autograd's nodes, and ends of backwards
  std::vector<std::pair<uint32_t, uint32_t>> recomputations;  // [begin, end) of forwards inside backward
};

// Follows the marks and writes a span whenever phase, step or module changes.
class Timeline {
 public:
  Timeline(const Trace& trace, bool cut_short, Problems* problems) : trace_(trace), problems_(problems), open_(trace, cut_short) {}

  void follow_marks(const std::vector<PlacedMark>& marks, Attribution* out, Landmarks* landmarks) {
    for (const PlacedMark& placed : marks) {
      close_span(placed.position, out);
      apply_mark(*placed.mark, placed.position, out, landmarks);
    }
    if (!open_.empty()) problems_->add(Problem::phase_unbalanced, fmt::format("{} phases never ended", open_.size()));
    close_span(static_cast<uint32_t>(trace_.events.size()), out);
    if (out->spans.empty()) out->spans.emplace_back();
  }

 private:
  int32_t step() const {
    if (completed_ == 0 && (open_.phase() == Phase::setup || open_.phase() == Phase::model_to_device)) return 0;
    return completed_ + 1;
  }

  void close_span(uint32_t position, Attribution* out) {
    if (position <= from_) return;
    const Span span{from_, position, open_.phase(), step(), open_.module(), open_.node()};
    if (!out->spans.empty()) {
      Span& last = out->spans.back();
      if (last.phase == span.phase && last.step == span.step && last.module == span.module && last.node == span.node) {
        last.end = position;
        from_ = position;
        return;
      }
    }
    out->spans.push_back(span);
    from_ = position;
  }

  void apply_mark(const Mark& mark, uint32_t position, Attribution* out, Landmarks* landmarks) {
    const OpenMarks::Change change = open_.apply(mark, position);
    if (change.unbalanced) {
      const char* what = mark.kind == MarkKind::phase_end ? "phase" : "module";
      problems_->add(Problem::phase_unbalanced, fmt::format("mark {} ends a {} that had not begun", mark.sequence, what));
    }
    if (mark.kind == MarkKind::phase_begin && mark.phase == MarkedPhase::backward) {
      landmarks->backward_begins.push_back(position);
      out->saw_backward = true;
    }
    if (mark.kind == MarkKind::module_backward) landmarks->node_begins.push_back(position);
    if (mark.kind == MarkKind::step) {  // may come inside optimizer_step or after it; the step lasts until that phase ends
      finished_step_ = std::max(finished_step_, static_cast<int32_t>(std::clamp<int64_t>(mark.step, 0, 1 << 30)));
      out->steps_completed = finished_step_;
    }
    if (change.ended) {
      if (mark.phase == MarkedPhase::backward) landmarks->node_begins.push_back(position);
      if (mark.phase == MarkedPhase::forward && open_.inside(MarkedPhase::backward))
        landmarks->recomputations.emplace_back(change.ended->begin, position);
      else if (mark.phase == MarkedPhase::forward && change.ended->outermost)
        landmarks->outer_forward_ends.push_back(position);
      else if (mark.phase == MarkedPhase::evaluation)
        landmarks->evaluation_ends.push_back(position);
    }
    if (open_.empty()) completed_ = finished_step_;
  }

  const Trace& trace_;
  Problems* problems_;
  OpenMarks open_;
  int32_t completed_ = 0, finished_step_ = 0;
  uint32_t from_ = 0;
};

// A run that ended within a step has tensors that wait for a backward, which never begins. The blocks to count are those alive before the
// exception unwound the stack.
void add_end_of_cut_run(const Lifetimes& lifetimes, const std::vector<PlacedMark>& marks, Landmarks* landmarks) {
  auto cut = static_cast<uint32_t>(lifetimes.allocated.size());
  for (const PlacedMark& placed : marks) {
    if (placed.mark->kind == MarkKind::exception) cut = placed.position;
  }
  if (!lifetimes.ooms.empty()) cut = std::min(cut, lifetimes.ooms.back().event);
  for (auto* landmark : {&landmarks->backward_begins, &landmarks->outer_forward_ends}) {
    if (landmark->empty() || landmark->back() < cut) landmark->push_back(cut);
  }
}

// ---- finding blocks by address and time ---------------------------------------------------------------------------------

class BlockFinder {
 public:
  explicit BlockFinder(const std::vector<Block>& blocks) : blocks_(blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) by_address_[blocks[i].address].push_back(static_cast<uint32_t>(i));
  }

  // The block that contains `address` at `position`; invalid when there is none.
  BlockId block_at(uint64_t address, uint32_t position) {
    const auto found = by_address_.find(address);
    if (found != by_address_.end()) {
      const auto& list = found->second;  // ascending by birth
      auto at = std::partition_point(list.begin(), list.end(), [&](uint32_t i) { return blocks_[i].alloc_event < position; });
      if (at != list.begin() && blocks_[*std::prev(at)].alive_at(position)) return BlockId(*std::prev(at));
    }
    return block_around(address, position);
  }

  // Calls `use` for each block that starts at `address` and is alive at some time between the two positions.
  template <class Use>
  void each_block_starting_at(uint64_t address, uint32_t from, uint32_t to, Use use) const {
    const auto found = by_address_.find(address);
    if (found == by_address_.end()) return;
    const auto& list = found->second;
    auto at = std::partition_point(list.begin(), list.end(),
                                   [&](uint32_t i) { return blocks_[i].free_event != Block::kNever && blocks_[i].free_event < from; });
    for (; at != list.end() && blocks_[*at].alloc_event < to; ++at) use(BlockId(*at));
  }

 private:
  // Tensors that begin inside a block (views of one flat buffer) are rare, and usually one mark has many of them.
  BlockId block_around(uint64_t address, uint32_t position) {
    if (!alive_valid_ || alive_position_ != position) {
      alive_.clear();
      for (uint32_t i = 0; i < blocks_.size() && blocks_[i].alloc_event < position; ++i) {
        if (blocks_[i].alive_at(position)) alive_.push_back(i);
      }
      std::sort(alive_.begin(), alive_.end(), [&](uint32_t a, uint32_t b) { return blocks_[a].address < blocks_[b].address; });
      alive_position_ = position;
      alive_valid_ = true;
    }
    auto at = std::partition_point(alive_.begin(), alive_.end(), [&](uint32_t i) { return blocks_[i].address <= address; });
    if (at == alive_.begin()) return {};
    const Block& block = blocks_[*--at];
    return address - block.address < static_cast<uint64_t>(block.size_bytes) ? BlockId(*at) : BlockId();
  }

  const std::vector<Block>& blocks_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_address_;
  std::vector<uint32_t> alive_;
  uint32_t alive_position_ = 0;
  bool alive_valid_ = false;
};

// ---- the rules, one function each; a block keeps the first category it gets ----------------------------------------------

struct Rules {
  const Trace& trace;
  const Lifetimes& lifetimes;
  const std::vector<PlacedMark>& marks;
  const Landmarks& landmarks;
  Attribution& out;
  std::vector<bool> explained;

  bool explain(BlockId id, Category category) {
    if (explained[id.index()]) return false;
    explained[id.index()] = true;
    out.blocks[id.index()].category = category;
    return true;
  }

  // If tensors of several kinds share a block (flat buffers), the kind with the longest life gives the category.
  void explain_tensors(BlockFinder* finder, Problems* problems) {
    std::unordered_map<int64_t, uint32_t> position_of;
    for (const PlacedMark& placed : marks) position_of.emplace(placed.mark->sequence, placed.position);
    constexpr std::pair<TensorKind, Category> kOrder[] = {{TensorKind::parameter_copy, Category::parameter_copies},
                                                          {TensorKind::parameter, Category::parameters},
                                                          {TensorKind::optimizer_state, Category::optimizer_state},
                                                          {TensorKind::gradient, Category::gradients},
                                                          {TensorKind::buffer, Category::buffers},
                                                          {TensorKind::input, Category::inputs}};
    for (const auto& [kind, category] : kOrder) {
      for (size_t i = 0; i < trace.tensors.size(); ++i) {
        const TensorMark& tensor = trace.tensors[i];
        if (tensor.kind != kind) continue;
        const auto position = position_of.find(tensor.sequence);
        const BlockId block = position == position_of.end() ? BlockId() : finder->block_at(tensor.address, position->second);
        if (!block.valid()) {
          problems->add(Problem::tensor_without_block,
                        fmt::format("mark {}, {} at {:#x}", tensor.sequence, trace.strings.text(tensor.name), tensor.address));
          continue;
        }
        BlockAttribution& named = out.blocks[block.index()];
        if (!explain(block, category)) {
          // If a later mark names the same tensor again, its later name is used: a model may be wrapped (DataParallel) after it went to the
          // card. If one mark has several names (tied weights), the first is used.
          if (named.category != category || !named.tensor.valid()) continue;
          const TensorMark& before = trace.tensors[named.tensor.index()];
          if (before.address != tensor.address || before.sequence == tensor.sequence) continue;
        }
        named.tensor = TensorId(static_cast<int64_t>(i));
        if (tensor.module.valid() && tensor.module.index() < trace.modules.size()) named.module = tensor.module;
      }
    }
  }

  // Both rules read the virtual GPU's log, which has marks of its own that align it with the history.
  void explain_workspaces_and_copies(const BlockFinder& finder) {
    std::unordered_map<uint64_t, uint32_t> position_of;
    for (const PlacedMark& placed : marks) position_of.emplace(static_cast<uint64_t>(placed.mark->sequence), placed.position);
    const auto end = static_cast<uint32_t>(lifetimes.allocated.size());
    const std::vector<VgpuEvent>& log = trace.vgpu_events;
    // The window of an entry: from the last mark before it to the first mark after it.
    std::vector<uint32_t> window_end(log.size() + 1, end);
    for (size_t i = log.size(); i-- > 0;) {
      window_end[i] = window_end[i + 1];
      if (log[i].kind != VgpuEventKind::mark) continue;
      const auto found = position_of.find(log[i].address);
      if (found != position_of.end()) window_end[i] = found->second;
    }
    for (const VgpuEventKind pass : {VgpuEventKind::workspace, VgpuEventKind::copy_to_device}) {
      uint32_t window_begin = 0;
      for (size_t i = 0; i < log.size(); ++i) {
        const VgpuEvent& entry = log[i];
        if (entry.kind == VgpuEventKind::mark) {
          const auto found = position_of.find(entry.address);
          if (found != position_of.end()) window_begin = found->second;
        }
        if (entry.kind != pass) continue;
        if (pass == VgpuEventKind::workspace) {
          explain_workspace(finder, entry, window_begin, window_end[i + 1]);
          continue;
        }
        finder.each_block_starting_at(entry.address, window_begin, window_end[i + 1], [&](BlockId id) {
          const bool filled = lifetimes.blocks[id.index()].requested_bytes == entry.size_bytes;
          if (filled && holds_inputs(out.blocks[id.index()].phase)) explain(id, Category::inputs);
        });
      }
    }
  }

  // A library may get a part of a larger workspace: newer releases share one between cuBLAS and cuBLASLt. Several blocks may have had this
  // address in the window; the likeliest is one with exactly this size.
  void explain_workspace(const BlockFinder& finder, const VgpuEvent& entry, uint32_t window_begin, uint32_t window_end) {
    BlockId best;
    int64_t best_bytes = 0;
    finder.each_block_starting_at(entry.address, window_begin, window_end, [&](BlockId id) {
      const int64_t bytes = lifetimes.blocks[id.index()].requested_bytes;
      if (bytes == entry.size_bytes) explain(id, Category::workspaces);
      if (bytes >= entry.size_bytes && (!best.valid() || bytes < best_bytes)) {
        best = id;
        best_bytes = bytes;
      }
    });
    if (best.valid()) explain(best, Category::workspaces);
  }

  static bool holds_inputs(Phase phase) {
    return phase != Phase::model_to_device && phase != Phase::forward && phase != Phase::backward && phase != Phase::optimizer_step;
  }

  void explain_communication() {
    for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
      if (!explained[i] && is_communication(trace, lifetimes.blocks[i].stack))
        explain(BlockId(static_cast<int64_t>(i)), Category::communication);
    }
  }

  void explain_activations() {
    for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
      if (explained[i]) continue;
      const Block& block = lifetimes.blocks[i];
      const Phase phase = out.blocks[i].phase;
      const auto alive_at_next = [&](const std::vector<uint32_t>& positions) {
        const auto next = std::upper_bound(positions.begin(), positions.end(), block.alloc_event);
        return next != positions.end() && block.alive_at(*next);
      };
      bool is = false;
      if (phase == Phase::forward || phase == Phase::loss) {
        is = alive_at_next(out.saw_backward ? landmarks.backward_begins : landmarks.outer_forward_ends);
      } else if (phase == Phase::evaluation) {  // its results, or a loss computed after it
        is = alive_at_next(landmarks.evaluation_ends) || alive_at_next(landmarks.backward_begins);
      } else if (phase == Phase::backward) {
        is = recomputed(block);
      }
      if (is) explain(BlockId(static_cast<int64_t>(i)), Category::activations);
    }
  }

  bool recomputed(const Block& block) const {
    const auto& list = landmarks.recomputations;  // ascending by end
    auto at = std::upper_bound(list.begin(), list.end(), block.alloc_event,
                               [](uint32_t event, const auto& range) { return event < range.second; });
    return at != list.end() && at->first <= block.alloc_event && block.alive_at(at->second);
  }

  void explain_intermediate_gradients() {
    const std::vector<uint32_t>& begins = landmarks.node_begins;
    for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
      if (explained[i] || out.blocks[i].phase != Phase::backward) continue;
      const Block& block = lifetimes.blocks[i];
      const auto next = std::upper_bound(begins.begin(), begins.end(), block.alloc_event);
      if (next != begins.end() && block.alive_at(*next)) explain(BlockId(static_cast<int64_t>(i)), Category::intermediate_gradients);
    }
  }

  void explain_temporaries() {
    for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {
      const Phase phase = out.blocks[i].phase;
      const bool in_step = phase == Phase::forward || phase == Phase::loss || phase == Phase::backward || phase == Phase::optimizer_step ||
                           phase == Phase::zero_grad || phase == Phase::evaluation;
      if (in_step || lifetimes.blocks[i].free_event != Block::kNever) explain(BlockId(static_cast<int64_t>(i)), Category::temporaries);
    }
  }
};

// Step 1 begins with its first input. What the script makes between the model and that (a copy for EMA, a second model) is of no step.
void begin_step_1_with_its_data(const Trace& trace, const Lifetimes& lifetimes, Attribution* out) {
  const auto first = std::find_if(out->spans.begin(), out->spans.end(), [](const Span& span) { return span.step > 0; });
  const auto other = std::find_if(first, out->spans.end(), [](const Span& span) { return span.step != 1 || span.phase != Phase::data; });
  if (first == other) return;
  const uint32_t from = first->begin;
  uint32_t begin = std::prev(other)->end;
  for (size_t i = 0; i < out->blocks.size(); ++i) {
    const uint32_t event = lifetimes.blocks[i].alloc_event;
    if (event >= begin) break;  // blocks are in order of begin
    if (event >= from && out->blocks[i].category == Category::inputs) begin = event;
  }
  while (begin < std::prev(other)->end && begin > from && trace.events[begin - 1].kind == EventKind::segment_alloc)
    --begin;  // for the input
  for (size_t i = 0; i < out->blocks.size() && lifetimes.blocks[i].alloc_event < begin; ++i) {
    if (lifetimes.blocks[i].alloc_event >= from) out->blocks[i].step = 0;
  }
  for (auto span = first; span != other && span->begin < begin; ++span) {
    if (span->end > begin) {
      Span before = *span;
      before.end = span->begin = begin;
      before.step = 0;
      out->spans.insert(span, before);
      return;
    }
    span->step = 0;
  }
}

}  // namespace

Attribution attribute(const Trace& trace, const Lifetimes& lifetimes, Problems* problems) {
  Attribution out;
  Landmarks landmarks;
  const std::vector<PlacedMark> marks = place_marks(trace, problems);
  const std::string& reason = trace.end.reason;
  const bool cut_short = reason != "steps" && reason != "script_end";
  Timeline(trace, cut_short, problems).follow_marks(marks, &out, &landmarks);
  out.forward_ends = landmarks.outer_forward_ends;
  if (cut_short) add_end_of_cut_run(lifetimes, marks, &landmarks);

  out.blocks.resize(lifetimes.blocks.size());
  size_t span = 0;
  for (size_t i = 0; i < lifetimes.blocks.size(); ++i) {  // blocks and spans are in order of begin
    while (span + 1 < out.spans.size() && out.spans[span].end <= lifetimes.blocks[i].alloc_event) ++span;
    out.blocks[i] = {Category::unattributed, out.spans[span].phase, out.spans[span].step, out.spans[span].module, {}, {}};
  }
  name_operators(trace, lifetimes, &out);

  if (trace.header.source == "snapshot") return out;
  BlockFinder finder(lifetimes.blocks);
  Rules rules{trace, lifetimes, marks, landmarks, out, std::vector<bool>(lifetimes.blocks.size(), false)};
  rules.explain_tensors(&finder, problems);
  rules.explain_workspaces_and_copies(finder);
  rules.explain_communication();
  rules.explain_activations();
  rules.explain_intermediate_gradients();
  rules.explain_temporaries();
  begin_step_1_with_its_data(trace, lifetimes, &out);
  return out;
}

std::vector<uint32_t> mark_positions(const Trace& trace) {
  const MarkPlacer placer(trace.events);
  std::vector<uint32_t> out;
  out.reserve(trace.marks.size());
  bool exact = false;
  for (const Mark& mark : trace.marks) out.push_back(placer.position_of(mark, &exact));
  return out;
}

}  // namespace gpucast
