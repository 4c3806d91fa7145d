#include "gpucast/breakdown.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "src/predict/analysis.h"
#include "src/predict/place.h"

namespace gpucast {
namespace {

static_assert(kCategories == static_cast<size_t>(Category::count_));

using RowIndex = int32_t;
constexpr RowIndex kNoRow = -1;

void add_block(BreakdownFigure* figure, const Block& block, int64_t sign) {
  figure->allocated_bytes += sign * block.size_bytes;
  figure->requested_bytes += sign * block.requested_bytes;
}

void add_block(BreakdownFigures* figures, Category category, const Block& block, int64_t sign = 1) {
  add_block(&figures->categories[static_cast<size_t>(category)], block, sign);
  add_block(&figures->total, block, sign);
}

void raise_to(BreakdownFigure* highest, const BreakdownFigure& now) {
  highest->allocated_bytes = std::max(highest->allocated_bytes, now.allocated_bytes);
  highest->requested_bytes = std::max(highest->requested_bytes, now.requested_bytes);
}

// One grouping: its rows, and for every block its most specific row.
struct Rows {
  std::vector<BreakdownRow> rows;
  std::vector<RowIndex> of_block;
};

Rows rows_without_blocks(size_t blocks) {
  Rows out;
  out.of_block.resize(blocks, kNoRow);
  return out;
}

// Rows by a key of the block, in order of the key.
template <class Key, class KeyOf, class NameOf>
Rows rows_by(const Facts& facts, KeyOf key_of, NameOf name_of) {
  Rows out = rows_without_blocks(facts.lifetimes.blocks.size());
  std::map<Key, RowIndex> rows;
  for (size_t i = 0; i < out.of_block.size(); ++i) rows.emplace(key_of(i), kNoRow);
  for (auto& [key, row] : rows) {
    row = static_cast<RowIndex>(out.rows.size());
    out.rows.emplace_back().name = name_of(key);
  }
  for (size_t i = 0; i < out.of_block.size(); ++i) out.of_block[i] = rows.at(key_of(i));
  return out;
}

Rows by_phase(const Facts& facts) {
  const auto& blocks = facts.attribution.blocks;
  const bool snapshot = facts.trace.header.source == "snapshot";
  return rows_by<Phase>(
      facts, [&](size_t i) { return blocks[i].phase; }, [&](Phase phase) { return snapshot ? "unknown" : phase_name(phase); });
}

Rows by_step(const Facts& facts) {
  const auto& blocks = facts.attribution.blocks;
  return rows_by<int32_t>(
      facts, [&](size_t i) { return blocks[i].step; },
      [](int32_t step) { return step == 0 ? "before the first step" : "step " + std::to_string(step); });
}

Rows by_operator(const Facts& facts) {
  const Attribution& attribution = facts.attribution;
  return rows_by<int32_t>(
      facts, [&](size_t i) { return attribution.blocks[i].op.value; },
      [&](int32_t op) { return op < 0 ? "(not known)" : attribution.operators[static_cast<size_t>(op)]; });
}

// Parameters, buffers and inputs by their name; gradients and optimizer state by their parameter's name. In order of first appearance.
Rows by_tensor(const Facts& facts) {
  const Trace& trace = facts.trace;
  Rows out = rows_without_blocks(facts.lifetimes.blocks.size());
  std::unordered_map<std::string_view, RowIndex> rows;
  const auto row = [&](std::string_view name) {
    const auto [at, fresh] = rows.try_emplace(name, static_cast<RowIndex>(out.rows.size()));
    if (fresh) out.rows.emplace_back().name = name;
    return at->second;
  };
  for (const TensorMark& tensor : trace.tensors) {
    if (tensor.kind == TensorKind::parameter) row(trace.strings.text(tensor.name));
  }
  RowIndex unnamed = kNoRow;
  for (size_t i = 0; i < out.of_block.size(); ++i) {
    const TensorId id = facts.attribution.blocks[i].tensor;
    if (id.valid()) {
      const TensorMark& tensor = trace.tensors[id.index()];
      std::string_view name = trace.strings.text(tensor.name);
      // "fc.weight.exp_avg", also "fc.weight.state.row".
      for (std::string_view part = name; tensor.kind == TensorKind::optimizer_state && !part.empty();) {
        const size_t dot = part.rfind('.');
        part = dot == std::string_view::npos ? std::string_view() : part.substr(0, dot);
        if (rows.contains(part)) {
          name = part;
          break;
        }
      }
      if (!name.empty()) {
        out.of_block[i] = row(name);
        continue;
      }
    }
    if (unnamed == kNoRow) unnamed = row("(no name)");
    out.of_block[i] = unnamed;
  }
  return out;
}

// The module tree in depth-first order. If a module with children owns blocks, they are in an extra child row ("itself"), so that children
// always add up to their parent.
class ModuleRows {
 public:
  explicit ModuleRows(const Facts& facts) : trace_(facts.trace), facts_(facts), nodes_(trace_.modules.size()) {}

  Rows rows() {
    Rows out = rows_without_blocks(facts_.lifetimes.blocks.size());
    bool outside = false;
    for (size_t i = 0; i < out.of_block.size(); ++i) {
      const ModuleId module = module_of(i);
      if (module.valid()) {
        mark_used(module);
        nodes_[module.index()].owns = true;
      } else {
        outside = true;
      }
    }
    std::vector<std::vector<ModuleId>> children(nodes_.size());
    std::vector<ModuleId> roots;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].used) continue;
      const ModuleId parent = parent_of(ModuleId(static_cast<int64_t>(i)));
      (parent.valid() ? children[parent.index()] : roots).emplace_back(static_cast<int64_t>(i));
    }
    for (const ModuleId root : roots) add_module_tree(root, kNoRow, children, &out);
    RowIndex outside_row = kNoRow;
    if (outside) {
      outside_row = static_cast<RowIndex>(out.rows.size());
      out.rows.emplace_back().name = "(outside of modules)";
    }
    for (size_t i = 0; i < out.of_block.size(); ++i) {
      const ModuleId module = module_of(i);
      out.of_block[i] = module.valid() ? nodes_[module.index()].row : outside_row;
    }
    return out;
  }

 private:
  struct Node {
    bool used = false, owns = false;
    RowIndex row = kNoRow;  // the row of its own blocks
  };

  ModuleId module_of(size_t block) const { return id_if_registered(facts_.attribution.blocks[block].module); }
  ModuleId id_if_registered(ModuleId id) const { return id.valid() && id.index() < trace_.modules.size() ? id : ModuleId(); }

  // In a damaged capture a module may be its own ancestor, so a parent is used only if it was registered earlier.
  ModuleId parent_of(ModuleId id) const {
    const ModuleId parent = id_if_registered(trace_.modules[id.index()].parent);
    return parent != id && !loops(id) ? parent : ModuleId();
  }

  bool loops(ModuleId id) const {
    size_t steps = 0;
    for (ModuleId up = id_if_registered(trace_.modules[id.index()].parent); up.valid();
         up = id_if_registered(trace_.modules[up.index()].parent)) {
      if (up == id || ++steps > trace_.modules.size()) return true;
    }
    return false;
  }

  void mark_used(ModuleId id) {
    for (; id.valid() && !nodes_[id.index()].used; id = parent_of(id)) nodes_[id.index()].used = true;
  }

  void add_module_tree(ModuleId root, RowIndex above, const std::vector<std::vector<ModuleId>>& children, Rows* out) {
    struct Waiting {
      ModuleId module;
      RowIndex parent;
    };
    std::vector<Waiting> waiting = {{root, above}};
    while (!waiting.empty()) {
      const auto [module, parent] = waiting.back();
      waiting.pop_back();
      Node& node = nodes_[module.index()];
      const auto& below = children[module.index()];
      const RowIndex at = add_row(module, parent, false, out);
      node.row = at;
      if (node.owns && !below.empty()) node.row = add_row(module, at, true, out);
      for (auto child = below.rbegin(); child != below.rend(); ++child) waiting.push_back({*child, at});
    }
  }

  RowIndex add_row(ModuleId module, RowIndex parent, bool itself, Rows* out) const {
    BreakdownRow row;
    row.name = trace_.strings.text(trace_.modules[module.index()].name);
    row.type = trace_.strings.text(trace_.modules[module.index()].type);
    row.parent = parent;
    row.depth = parent == kNoRow ? 0 : out->rows[static_cast<size_t>(parent)].depth + 1;
    row.itself = itself;
    out->rows.push_back(std::move(row));
    return static_cast<RowIndex>(out->rows.size()) - 1;
  }

  const Trace& trace_;
  const Facts& facts_;
  std::vector<Node> nodes_;
};

// Adds the blocks that are alive at a position to their rows and to all rows above.
void fill_moment(const Facts& facts, uint32_t position, Instant moment, std::vector<Rows>* groupings, BreakdownFigures* total) {
  const auto& blocks = facts.lifetimes.blocks;
  for (size_t i = 0; i < blocks.size() && blocks[i].alloc_event <= position; ++i) {
    if (!blocks[i].alive_at(position)) continue;
    const Category category = facts.attribution.blocks[i].category;
    add_block(total, category, blocks[i]);
    for (Rows& grouping : *groupings) {
      for (RowIndex row = grouping.of_block[i]; row != kNoRow; row = grouping.rows[static_cast<size_t>(row)].parent) {
        add_block(&grouping.rows[static_cast<size_t>(row)].moments[static_cast<size_t>(moment)], category, blocks[i]);
      }
    }
  }
}

// Follows all births and deaths. After each, only the changed values can be new maxima of their category.
void fill_maximum(const Facts& facts, std::vector<Rows>* groupings, BreakdownFigures* total) {
  const auto& blocks = facts.lifetimes.blocks;
  std::vector<uint32_t> freed_by(facts.lifetimes.allocated.size(), UINT32_MAX);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].free_event != Block::kNever) freed_by[blocks[i].free_event] = static_cast<uint32_t>(i);
  }
  std::vector<std::vector<BreakdownFigures>> now;
  for (const Rows& grouping : *groupings) now.emplace_back(grouping.rows.size());
  BreakdownFigures total_now;
  constexpr auto kMaximum = static_cast<size_t>(Instant::maximum);
  const auto change = [](BreakdownFigures* running, BreakdownFigures* highest, Category category, const Block& block, int64_t sign) {
    add_block(running, category, block, sign);
    if (sign < 0) return;
    raise_to(&highest->categories[static_cast<size_t>(category)], running->categories[static_cast<size_t>(category)]);
    raise_to(&highest->total, running->total);
  };
  const auto change_all_rows = [&](size_t i, int64_t sign) {
    const Category category = facts.attribution.blocks[i].category;
    change(&total_now, total, category, blocks[i], sign);
    for (size_t g = 0; g < groupings->size(); ++g) {
      Rows& grouping = (*groupings)[g];
      for (RowIndex row = grouping.of_block[i]; row != kNoRow; row = grouping.rows[static_cast<size_t>(row)].parent) {
        const auto at = static_cast<size_t>(row);
        change(&now[g][at], &grouping.rows[at].moments[kMaximum], category, blocks[i], sign);
      }
    }
  };
  size_t next = 0;
  for (; next < blocks.size() && blocks[next].before_start; ++next) change_all_rows(next, +1);
  for (uint32_t event = 0; event < freed_by.size(); ++event) {
    for (; next < blocks.size() && blocks[next].alloc_event == event; ++next) change_all_rows(next, +1);
    if (freed_by[event] != UINT32_MAX) change_all_rows(freed_by[event], -1);
  }
}

// Position of Instant::forward_end: in the peak's step, if it has one.
std::optional<uint32_t> forward_end(const Facts& facts) {
  const std::vector<uint32_t>& ends = facts.attribution.forward_ends;
  if (ends.empty()) return std::nullopt;
  const Peak& peak = facts.lifetimes.peak_allocated;
  const auto after = std::upper_bound(ends.begin(), ends.end(), peak.event);
  const bool in_forward = span_of_event(facts.attribution, peak.event).phase == Phase::forward;
  if (after == ends.begin() || (in_forward && after != ends.end())) return *after;
  return *std::prev(after);
}

void sort_by_peak(Rows* grouping) {
  std::stable_sort(grouping->rows.begin(), grouping->rows.end(), [](const BreakdownRow& a, const BreakdownRow& b) {
    const auto bytes = [](const BreakdownRow& row, Instant moment) {
      return row.moments[static_cast<size_t>(moment)].total.allocated_bytes;
    };
    return std::pair(bytes(a, Instant::peak), bytes(a, Instant::maximum)) > std::pair(bytes(b, Instant::peak), bytes(b, Instant::maximum));
  });
}

}  // namespace

const char* instant_name(Instant moment) {
  static constexpr const char* kNames[] = {"peak", "forward_end", "end", "maximum"};
  static_assert(std::size(kNames) == kInstants);
  return kNames[static_cast<size_t>(moment)];
}

const char* grouping_name(Grouping grouping) {
  static constexpr const char* kNames[] = {"module", "operator", "phase", "step", "tensor"};
  static_assert(std::size(kNames) == static_cast<size_t>(Grouping::count_));
  return kNames[static_cast<size_t>(grouping)];
}

Breakdown breakdown(const Analysis& analysis) {
  const Facts& facts = *analysis.facts;
  const Lifetimes& lifetimes = facts.lifetimes;
  Breakdown out;
  for (size_t i = 0; i < kCategories; ++i) out.categories.emplace_back(category_name(static_cast<Category>(i)));
  out.peak_reserved_bytes = lifetimes.peak_reserved.bytes;
  out.ledger = analysis.prediction.ledger;
  out.device = analysis.prediction.device;

  // Every block has one row in each grouping.
  std::vector<Rows> groupings = {ModuleRows(facts).rows(), by_operator(facts), by_phase(facts), by_step(facts), by_tensor(facts)};

  const auto end = static_cast<uint32_t>(lifetimes.allocated.size());
  const std::optional<uint32_t> positions[] = {lifetimes.peak_allocated.position(), forward_end(facts), end};
  for (size_t i = 0; i < std::size(positions); ++i) {
    if (!positions[i] || end == 0) continue;
    BreakdownMoment& moment = out.moments[i];
    moment.known = true;
    moment.place = place_of_event(facts.trace, facts.attribution, *positions[i] == 0 ? 0 : *positions[i] - 1);
    moment.allocated_bytes = lifetimes.allocated_at(*positions[i]);
    moment.reserved_bytes = lifetimes.reserved_at(*positions[i]);
    fill_moment(facts, *positions[i], static_cast<Instant>(i), &groupings, &moment.figures);
  }
  BreakdownMoment& maximum = out.moments[static_cast<size_t>(Instant::maximum)];
  maximum.known = end > 0;
  fill_maximum(facts, &groupings, &maximum.figures);
  maximum.allocated_bytes = lifetimes.peak_allocated.bytes;
  maximum.reserved_bytes = lifetimes.peak_reserved.bytes;

  sort_by_peak(&groupings[static_cast<size_t>(Grouping::op)]);
  for (size_t i = 0; i < groupings.size(); ++i) out.rows[i] = std::move(groupings[i].rows);
  return out;
}

}  // namespace gpucast
