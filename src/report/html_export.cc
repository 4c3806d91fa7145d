#include "src/report/html_export.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/job_occupancy.h"
#include "gpucast/report.h"
#include "gpucast/step_time.h"
#include "src/base/json.h"
#include "src/predict/timeline.h"
#include "src/report/html_columns.h"
#include "src/report/html_template.h"
#include "src/report/json_parts.h"
#include "src/report/time_words.h"

namespace gpucast {
namespace {

constexpr std::string_view kPredictionHere = "<!--gpucast:prediction-->", kDataHere = "<!--gpucast:data-->";
constexpr uint32_t kNone = UINT32_MAX;

// ---- the data ---------------------------------------------------------------------------------------------------------

// Numbers entries in the order of their first use, so that only used entries are written.
class Numbering {
 public:
  explicit Numbering(size_t most) : number_(most, kNone) {}
  uint32_t number_of(size_t index) {
    if (number_[index] == kNone) {
      number_[index] = static_cast<uint32_t>(used_.size());
      used_.push_back(index);
    }
    return number_[index];
  }
  const std::vector<size_t>& used() const { return used_; }

 private:
  std::vector<uint32_t> number_;
  std::vector<size_t> used_;
};

// Blocks that differ only in their times and addresses: most of a step's blocks occur again in the next step. The page stores and searches
// kinds, not blocks.
struct BlockKind {
  int64_t size_bytes = 0, requested_bytes = 0;
  uint64_t stream = 0;
  int32_t stack = -1, module = -1, op = -1, tensor = -1;
  Category category = Category::unattributed;
  Phase phase = Phase::setup;
  friend bool operator==(const BlockKind&, const BlockKind&) = default;
};

struct BlockKindHash {
  size_t operator()(const BlockKind& kind) const {
    size_t hash = 0;
    const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL ^ hash >> 29; };
    mix(static_cast<uint64_t>(kind.size_bytes));
    mix(static_cast<uint64_t>(kind.requested_bytes));
    mix(kind.stream);
    mix(static_cast<uint64_t>(kind.stack) << 32 | static_cast<uint32_t>(kind.module));
    mix(static_cast<uint64_t>(kind.op) << 32 | static_cast<uint32_t>(kind.tensor));
    mix(static_cast<uint64_t>(kind.category) << 8 | static_cast<uint64_t>(kind.phase));
    return hash;
  }
};

class HtmlWriter {
 public:
  explicit HtmlWriter(const Analysis& analysis)
      : trace_(analysis.facts->trace),
        lifetimes_(analysis.facts->lifetimes),
        attribution_(analysis.facts->attribution),
        analysis_(analysis),
        strings_(trace_.strings.size()),
        stacks_(trace_.stacks.size()) {}

  std::string payload() {
    add_blocks();
    add_segments();
    add_spans();
    add_ooms();
    add_modules();
    add_stacks();
    Json meta;
    meta["events"] = trace_.events.size();
    meta["explained"] = trace_.header.source != "snapshot";
    meta["peak_position"] = lifetimes_.peak_allocated.position();
    meta["peak_reserved_position"] = lifetimes_.peak_reserved.position();
    for (size_t i = 0; i < static_cast<size_t>(Category::count_); ++i)
      meta["categories"].push_back(category_name(static_cast<Category>(i)));
    for (size_t i = 0; i < static_cast<size_t>(Phase::count_); ++i) meta["phases"].push_back(phase_name(static_cast<Phase>(i)));
    meta["operators"] = attribution_.operators;
    if (Json step = step_work(); !step.is_null()) meta["step"] = std::move(step);
    meta["strings"] = Json::array();
    for (const size_t index : strings_.used()) meta["strings"].push_back(trace_.strings.text(StringId(static_cast<int64_t>(index))));
    return columns_.packed(std::move(meta));
  }

 private:
  int32_t string(StringId id) { return id.valid() ? static_cast<int32_t>(strings_.number_of(id.index())) : -1; }
  int32_t stack(StackId id) {
    return id.valid() && id.index() < trace_.stacks.size() ? static_cast<int32_t>(stacks_.number_of(id.index())) : -1;
  }
  int32_t module(ModuleId id) const { return id.valid() && id.index() < trace_.modules.size() ? id.value : -1; }

  void add_blocks() {
    const std::vector<Block>& blocks = lifetimes_.blocks;
    const std::vector<uint32_t> released = released_at(*analysis_.facts);
    std::unordered_map<BlockKind, uint32_t, BlockKindHash> numbers;
    std::vector<const BlockKind*> kinds;
    std::vector<uint32_t> kind(blocks.size()), low(blocks.size()), high(blocks.size()), birth(blocks.size()), life(blocks.size()),
        wait(blocks.size());
    std::vector<int32_t> step(blocks.size());
    uint32_t last_birth = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      const BlockAttribution& a = attribution_.blocks[i];
      const BlockKind key = {block.size_bytes, block.requested_bytes, block.stream, stack(block.stack),
                             module(a.module), operator_of(a),        tensor_of(a), a.category,
                             a.phase};
      const auto [found, is_new] = numbers.try_emplace(key, static_cast<uint32_t>(kinds.size()));
      if (is_new) kinds.push_back(&found->first);
      kind[i] = found->second;
      low[i] = static_cast<uint32_t>(block.address);
      high[i] = static_cast<uint32_t>(block.address >> 32);
      const uint32_t born = block.before_start ? 0 : block.alloc_event + 1;
      birth[i] = born - last_birth;
      last_birth = born;
      const bool dies = block.free_event != Block::kNever;
      life[i] = dies ? block.free_event + 1 - born : kNone;
      wait[i] = dies && released[i] != Block::kNever ? released[i] - (block.free_event + 1) : kNone;
      step[i] = a.step;
    }
    columns_.add("block.kind", kind);
    columns_.add("block.address_low", low);
    columns_.add("block.address_high", high);
    columns_.add("block.birth", birth);
    columns_.add("block.life", life);
    columns_.add("block.wait", wait);
    columns_.add("block.step", step);

    const auto column = [&](const char* name, auto value) {
      std::vector<decltype(value(*kinds[0]))> values;
      values.reserve(kinds.size());
      for (const BlockKind* one : kinds) values.push_back(value(*one));
      columns_.add(name, values);
    };
    column("kind.size", [](const BlockKind& k) { return static_cast<double>(k.size_bytes); });
    column("kind.requested", [](const BlockKind& k) { return static_cast<double>(k.requested_bytes); });
    column("kind.stream", [](const BlockKind& k) { return static_cast<double>(k.stream); });
    column("kind.category", [](const BlockKind& k) { return static_cast<uint8_t>(k.category); });
    column("kind.phase", [](const BlockKind& k) { return static_cast<uint8_t>(k.phase); });
    column("kind.module", [](const BlockKind& k) { return k.module; });
    column("kind.operator", [](const BlockKind& k) { return k.op; });
    column("kind.tensor", [](const BlockKind& k) { return k.tensor; });
    column("kind.stack", [](const BlockKind& k) { return k.stack; });
  }

  int32_t operator_of(const BlockAttribution& a) const {
    return a.op.valid() && a.op.index() < attribution_.operators.size() ? a.op.value : -1;
  }
  // By name, because each step has the same tensors.
  int32_t tensor_of(const BlockAttribution& a) {
    return a.tensor.valid() && a.tensor.index() < trace_.tensors.size() ? string(trace_.tensors[a.tensor.index()].name) : -1;
  }

  void add_segments() {
    const std::vector<SegmentLife> lives = segment_lives(*analysis_.facts);
    std::vector<double> address, size, stream;
    std::vector<uint8_t> expandable;
    std::vector<uint32_t> birth, death;
    for (const SegmentLife& life : lives) {
      address.push_back(static_cast<double>(life.address));
      size.push_back(static_cast<double>(life.size_bytes));
      stream.push_back(static_cast<double>(life.stream));
      expandable.push_back(life.expandable ? 1 : 0);
      birth.push_back(life.birth);
      death.push_back(life.death);
    }
    columns_.add("segment.address", address);
    columns_.add("segment.size", size);
    columns_.add("segment.stream", stream);
    columns_.add("segment.expandable", expandable);
    columns_.add("segment.birth", birth);
    columns_.add("segment.death", death);
  }

  void add_spans() {
    std::vector<uint32_t> length;
    std::vector<uint8_t> phase;
    std::vector<int32_t> step, in_module;
    for (const Span& span : attribution_.spans) {
      if (span.end == span.begin) continue;
      length.push_back(span.end - span.begin);
      phase.push_back(static_cast<uint8_t>(span.phase));
      step.push_back(span.step);
      in_module.push_back(module(span.module));
    }
    columns_.add("span.length", length);
    columns_.add("span.phase", phase);
    columns_.add("span.step", step);
    columns_.add("span.module", in_module);
  }

  void add_ooms() {
    std::vector<uint32_t> event;
    std::vector<double> requested, free;
    for (const Oom& oom : lifetimes_.ooms) {
      event.push_back(oom.event);
      requested.push_back(static_cast<double>(oom.requested_bytes));
      free.push_back(static_cast<double>(oom.free_bytes));
    }
    columns_.add("oom.event", event);
    columns_.add("oom.requested", requested);
    columns_.add("oom.free", free);
  }

  void add_modules() {
    std::vector<int32_t> parent, name, type;
    for (const Module& one : trace_.modules) {
      parent.push_back(module(one.parent));
      name.push_back(string(one.name));
      type.push_back(string(one.type));
    }
    columns_.add("module.parent", parent);
    columns_.add("module.name", name);
    columns_.add("module.type", type);
  }

  // Only the strings are written later, because all used stacks must be known here.
  void add_stacks() {
    Numbering frames(trace_.frames.size());
    std::vector<uint32_t> count, frame;
    for (const size_t index : stacks_.used()) {
      const Stack& one = trace_.stacks[index];
      count.push_back(one.frame_count);
      for (uint32_t i = one.first_frame; i < one.first_frame + one.frame_count; ++i)
        frame.push_back(frames.number_of(trace_.stack_frames[i].index()));
    }
    std::vector<int32_t> file, function, line;
    for (const size_t index : frames.used()) {
      file.push_back(string(trace_.frames[index].file));
      function.push_back(string(trace_.frames[index].function));
      line.push_back(static_cast<int32_t>(trace_.frames[index].line));
    }
    columns_.add("stack.frame_count", count);
    columns_.add("stack.frames", frame);
    columns_.add("frame.file", file);
    columns_.add("frame.function", function);
    columns_.add("frame.line", line);
  }

  // The GPU's work of the observed step, as it would run on the card: columns in the order of the program's requests. Null: there is none.
  Json step_work() {
    std::vector<GpuSlice> slices = gpu_slices(*analysis_.facts, analysis_.gpu);
    if (slices.empty()) return nullptr;
    std::sort(slices.begin(), slices.end(), [](const GpuSlice& a, const GpuSlice& b) { return a.asked < b.asked; });
    HtmlTexts names;
    const std::vector<double> occupancies = operation_occupancies(*analysis_.facts, analysis_.gpu);
    std::vector<double> start, duration, occupancy;
    std::vector<uint32_t> position, called, kernel, sizes, kind, bound, phase, stream, launches;
    std::vector<int32_t> in_module;
    for (const GpuSlice& slice : slices) {
      start.push_back(slice.start_ns);
      duration.push_back(slice.duration_ns);
      occupancy.push_back(slice.asked < occupancies.size() ? occupancies[slice.asked] : -1);
      position.push_back(slice.position);
      called.push_back(names.number_of(slice.name));
      kernel.push_back(names.number_of(slice.kernel));
      sizes.push_back(names.number_of(slice.sizes));
      kind.push_back(names.number_of(slice.kind));
      bound.push_back(names.number_of(slice.bound));
      phase.push_back(names.number_of(slice.phase));
      stream.push_back(static_cast<uint32_t>(slice.stream));
      launches.push_back(static_cast<uint32_t>(slice.launches));
      in_module.push_back(module(slice.module));
    }
    columns_.add("work.start", start);
    columns_.add("work.duration", duration);
    columns_.add("work.occupancy", occupancy);
    columns_.add("work.position", position);
    columns_.add("work.name", called);
    columns_.add("work.kernel", kernel);
    columns_.add("work.sizes", sizes);
    columns_.add("work.kind", kind);
    columns_.add("work.bound", bound);
    columns_.add("work.phase", phase);
    columns_.add("work.stream", stream);
    columns_.add("work.launches", launches);
    columns_.add("work.module", in_module);
    return {{"number", trace_.observed.step}, {"names", names.texts()}, {"time", step_time()}};
  }

  // What the observed step waits for, as in `gpucast time`.
  Json step_time() const {
    StepTimeOptions options;
    options.gpus = {analysis_.gpu};
    const StepTimes times = step_times(*analysis_.facts, options);
    const CardTime& card = times.cards.front();
    Json out = {{"step", time_range_json(card.step)},
                {"bound", step_bound_name(card.bound)},
                {"gpu_ns", card.gpu_ns},
                {"host_ns", card.host_ns},
                {"bound_words", bound_words(card)},
                {"interval_words", interval_words(card)},
                {"loader_words", Json::array()},
                {"notes", Json::array()},
                {"loader", nullptr}};
    if (!times.loader) return out;
    const LoaderFigures& figures = *times.loader;
    out["notes"] = figures.notes;
    if (figures.kind == LoaderKind::dataloader) out["loader_words"].push_back(loader_words(figures));
    if (!card.loader) return out;
    out["loader_words"].push_back(batch_words(figures));
    if (const std::string reads = read_words(figures); !reads.empty()) out["loader_words"].push_back(reads);
    const CardLoader& loader = *card.loader;
    Json stages = list_json(figures.stages_ns, [](const auto& stage) { return Json{{"name", stage.first}, {"ns", stage.second}}; });
    Json choices = list_json(loader.choices, [](const LoaderChoice& choice) {
      return Json{{"workers", choice.workers},
                  {"batch", time_range_json(choice.batch)},
                  {"step", time_range_json(choice.step)},
                  {"wait_share", choice.wait_share},
                  {"bound", bound_words(choice)}};
    });
    out["loader"] = {{"workers", figures.workers},
                     {"batches", figures.batches},
                     {"fed_ns", static_cast<double>(figures.batches) * loader.now.batch.expected_ns},
                     {"wait_share", loader.now.wait_share},
                     {"stages", std::move(stages)},
                     {"choices", std::move(choices)},
                     {"advice", workers_advice(figures, card)}};
    return out;
  }

  const Trace& trace_;
  const Lifetimes& lifetimes_;
  const Attribution& attribution_;
  const Analysis& analysis_;
  HtmlColumns columns_;
  Numbering strings_, stacks_;
};

}  // namespace

void write_html(const Analysis& analysis, std::ostream& out) {
  const std::string_view page = html_template();
  if (page.empty()) {
    throw Error("this gpucast was built without its HTML page", "",
                "install Node.js (18 or newer) and npm, then build again with -DGPUCAST_WEB=ON");
  }
  const size_t prediction = page.find(kPredictionHere), data = page.find(kDataHere);
  if (prediction == std::string_view::npos || data == std::string_view::npos || data < prediction)
    throw Error("internal error: the HTML page has no place for data");
  out << page.substr(0, prediction) << json_for_script(json_report(analysis.prediction));
  out << page.substr(prediction + kPredictionHere.size(), data - prediction - kPredictionHere.size());
  out << HtmlWriter(analysis).payload() << page.substr(data + kDataHere.size());
  out.flush();
  if (!out) throw Error("the report cannot be written", "", "is the disk full?");
}

}  // namespace gpucast
