// The text report of `gpucast breakdown`: the sum at one moment, then its grouping, in at most 100 columns.

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "gpucast/report.h"
#include "src/base/bytes.h"
#include "src/base/with_spaces.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kColumnWidth = 9, kTreeColumns = 7, kListColumns = 5, kAutomaticLines = 45;
constexpr int32_t kAllDepths = INT32_MAX;

struct Column {
  std::string head[2];
  std::vector<size_t> categories;  // summed
};

struct Table {
  const std::vector<BreakdownRow>& rows;
  size_t moment;
  std::vector<Column> columns;
  size_t name_columns = 0;
};

const char* moment_words(Instant moment) {
  static constexpr const char* kWords[] = {"at the peak of allocated", "at the end of forward", "at the end of the capture",
                                           "the highest of each figure over the whole run"};
  static_assert(std::size(kWords) == kInstants);
  return kWords[static_cast<size_t>(moment)];
}

// Short heads for the narrow columns of a table.
Column column_of(const Breakdown& b, size_t category) {
  static constexpr std::pair<const char*, std::pair<const char*, const char*>> kHeads[] = {{"parameters", {"", "params"}},
                                                                                           {"gradients", {"", "grads"}},
                                                                                           {"optimizer_state", {"optim.", "state"}},
                                                                                           {"parameter_copies", {"param.", "copies"}},
                                                                                           {"activations", {"activ-", "ations"}},
                                                                                           {"intermediate_gradients", {"interm.", "grads"}},
                                                                                           {"inputs", {"", "inputs"}},
                                                                                           {"buffers", {"", "buffers"}},
                                                                                           {"temporaries", {"tempo-", "raries"}},
                                                                                           {"workspaces", {"work-", "spaces"}},
                                                                                           {"communication", {"commu-", "nication"}},
                                                                                           {"unattributed", {"unattri-", "buted"}}};
  Column out;
  out.head[1] = b.categories[category];
  for (const auto& [name, head] : kHeads) {
    if (b.categories[category] != name) continue;
    out.head[0] = head.first;
    out.head[1] = head.second;
  }
  out.categories = {category};
  return out;
}

// A column for every category with bytes; if there are too many, the smallest ones share a column.
std::vector<Column> columns_of(const Breakdown& b, const BreakdownFigures& total, size_t most) {
  std::vector<size_t> order;
  for (size_t i = 0; i < kCategories; ++i) {
    if (total.categories[i].allocated_bytes > 0) order.push_back(i);
  }
  Column other;
  other.head[1] = "other";
  if (order.size() > most) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t x, size_t y) { return total.categories[x].allocated_bytes > total.categories[y].allocated_bytes; });
    other.categories.assign(order.begin() + static_cast<std::ptrdiff_t>(most) - 1, order.end());
    order.resize(most - 1);
    std::sort(order.begin(), order.end());
  }
  std::vector<Column> out;
  out.reserve(order.size() + 1);
  for (const size_t category : order) out.push_back(column_of(b, category));
  if (!other.categories.empty()) out.push_back(std::move(other));
  return out;
}

std::string cell(int64_t bytes) { return bytes == 0 ? "." : mib(bytes, 1); }

void write_table_line(const Table& table, const std::string& name, const BreakdownFigures& figures, TextWriter* out) {
  std::string text = fmt::format("{:<{}}{:>{}}", name, table.name_columns, cell(figures.total.allocated_bytes), kColumnWidth + 1);
  for (const Column& column : table.columns) {
    int64_t bytes = 0;
    for (const size_t category : column.categories) bytes += figures.categories[category].allocated_bytes;
    text += fmt::format("{:>{}}", cell(bytes), kColumnWidth);
  }
  out->line(text);
}

void write_heads(const Table& table, const std::string& what, TextWriter* out) {
  for (size_t row = 0; row < 2; ++row) {
    std::string text = fmt::format("{:<{}}{:>{}}", row == 1 ? what : "", table.name_columns, row == 1 ? "total" : "", kColumnWidth + 1);
    for (const Column& column : table.columns) text += fmt::format("{:>{}}", column.head[row], kColumnWidth);
    if (text.find_first_not_of(' ') != std::string::npos || row == 1) out->line(text);
  }
}

int64_t bytes_of(const BreakdownRow& row, size_t moment) { return row.moments[moment].total.allocated_bytes; }

// "h.0" for "transformer.h.0" below "transformer"; with the class, if there is room.
std::string label(const std::vector<BreakdownRow>& rows, const BreakdownRow& row, size_t columns) {
  const std::string indent(static_cast<size_t>(2 * row.depth), ' ');
  if (row.itself) return cut_end(indent + "(itself)", columns);
  std::string name = row.name;
  if (row.parent >= 0) {
    const std::string& above = rows[static_cast<size_t>(row.parent)].name;
    if (!above.empty() && name.starts_with(above + ".")) name = name.substr(above.size() + 1);
  }
  if (name.empty()) return cut_end(indent + printable(row.type), columns);
  std::string text = indent + printable(name);
  const std::string with_type = row.type.empty() ? text : fmt::format("{} ({})", text, printable(row.type));
  return width(with_type) <= columns ? with_type : cut_end(text, columns);
}

// True: the row is shown at this depth. Rows without bytes at the moment are left out.
bool shown(const BreakdownRow& row, size_t moment, int32_t depth) { return row.depth <= depth && bytes_of(row, moment) > 0; }

size_t lines_at(const Table& table, int32_t depth) {
  return static_cast<size_t>(
      std::count_if(table.rows.begin(), table.rows.end(), [&](const BreakdownRow& row) { return shown(row, table.moment, depth); }));
}

int32_t deepest(const Table& table) {
  int32_t depth = 0;
  for (const BreakdownRow& row : table.rows) {
    if (bytes_of(row, table.moment) > 0) depth = std::max(depth, row.depth);
  }
  return depth;
}

// The largest depth that fits on a screen, at least 1 for the modules below the root.
int32_t automatic_depth(const Table& table) {
  int32_t depth = 1;
  while (depth < deepest(table) && lines_at(table, depth + 1) <= kAutomaticLines) ++depth;
  return depth;
}

void write_modules(const Table& table, const BreakdownTextOptions& options, TextWriter* out) {
  const int32_t depth = options.depth.value_or(automatic_depth(table));
  for (const BreakdownRow& row : table.rows) {
    if (!shown(row, table.moment, depth)) continue;
    write_table_line(table, label(table.rows, row, table.name_columns - 1), row.moments[table.moment], out);
  }
  if (depth < deepest(table)) {
    out->format("{} more rows below: --depth {}", lines_at(table, kAllDepths) - lines_at(table, depth), deepest(table));
  }
}

void add_figures(BreakdownFigures* sum, const BreakdownFigures& more) {
  for (size_t i = 0; i < kCategories; ++i) sum->categories[i].allocated_bytes += more.categories[i].allocated_bytes;
  sum->total.allocated_bytes += more.total.allocated_bytes;
}

// Paths are cut at their beginning, because the end is more useful.
std::string list_label(const BreakdownRow& row, Grouping by, size_t columns) {
  const std::string name = printable(row.name);
  const bool path = by == Grouping::tensor || name.find('/') != std::string::npos;
  return path ? cut_begin(name, columns) : cut_end(name, columns);
}

void write_list(const Table& table, Instant moment, const BreakdownTextOptions& options, TextWriter* out) {
  size_t lines = 0, left = 0;
  BreakdownFigures others;
  for (const BreakdownRow& row : table.rows) {
    if (bytes_of(row, table.moment) == 0) continue;
    if (lines < options.rows) {
      write_table_line(table, list_label(row, options.by, table.name_columns - 1), row.moments[table.moment], out);
      ++lines;
    } else {
      ++left;
      add_figures(&others, row.moments[table.moment]);
    }
  }
  if (left == 0) return;
  const std::string name = fmt::format("{} others (--rows {})", left, lines + left);
  if (moment == Instant::maximum) return out->line(name);  // highest values at different times have no sum
  write_table_line(table, name, others, out);
}

// The sums, from the categories to the card's total.
void write_sums(const Breakdown& b, Instant at, TextWriter* out) {
  const BreakdownMoment& moment = b.moments[static_cast<size_t>(at)];
  const int64_t allocated = moment.figures.total.allocated_bytes;
  out->format("{:<44}{:>14}", "", "MiB");
  std::vector<size_t> order(kCategories);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto bytes = [&](size_t category) { return moment.figures.categories[category].allocated_bytes; };
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return bytes(x) > bytes(y); });
  for (const size_t category : order) {
    if (bytes(category) == 0) continue;
    const double share = allocated == 0 ? 0 : static_cast<double>(bytes(category)) / static_cast<double>(allocated);
    out->format("  {:<42}{:>14}  {:>5.1f} %", with_spaces(b.categories[category]), mib(bytes(category)), 100 * share);
  }
  if (at == Instant::maximum) {
    return out->wrapped("", "These are reached at different times, so they do not add up to the peak of allocated, " +
                                format_mib(b.moments[0].allocated_bytes) + ".");
  }
  out->format("{}{:>14}", out->bold("allocated") + std::string(35, ' '), mib(allocated));
  out->format("  {:<42}{:>14}  {:>5.1f} % of it", "of that, rounding of sizes", mib(allocated - moment.figures.total.requested_bytes),
              allocated == 0
                  ? 0.0
                  : 100.0 * static_cast<double>(allocated - moment.figures.total.requested_bytes) / static_cast<double>(allocated));
  out->format("  {:<42}{:>14}", "free in the allocator's segments", mib(moment.reserved_bytes - allocated));
  out->format("{}{:>14}", out->bold("reserved by PyTorch then") + std::string(20, ' '), mib(moment.reserved_bytes));
  if (b.peak_reserved_bytes != moment.reserved_bytes) {
    out->format("  {:<42}{:>14}", "more at the peak of reserved", mib(b.peak_reserved_bytes - moment.reserved_bytes));
  }
  for (const LedgerLine& entry : b.ledger) {
    if (entry.expected_bytes == 0) continue;
    const std::string what = entry.library.empty() ? entry.what : fmt::format("{}: {}", entry.library, entry.what);
    out->format("  {:<42}{:>14}", cut_end(what, 41), mib(entry.expected_bytes));
  }
  out->format("{}{:>14}", out->bold("on the card in all") + std::string(26, ' '), mib(b.device.expected_bytes));
}

}  // namespace

std::string breakdown_text(const Breakdown& b, const BreakdownTextOptions& options) {
  TextWriter out(options.colour);
  const BreakdownMoment& moment = b.moments[static_cast<size_t>(options.moment)];
  if (!moment.known) {
    out.wrapped("", options.moment == Instant::forward_end
                        ? "The input does not say where a forward ends, so nothing is known of that moment."
                        : "The history has no events: nothing was allocated.");
    return out.take();
  }
  out.wrapped("", fmt::format("{}, {}{}", out.bold("Where the memory goes"), moment_words(options.moment),
                              options.moment == Instant::maximum ? "" : ": " + place_text(moment.place)));
  out.line();
  write_sums(b, options.moment, &out);

  Table table{b.by(options.by), static_cast<size_t>(options.moment),
              columns_of(b, moment.figures, options.by == Grouping::module ? kTreeColumns : kListColumns), 0};
  table.name_columns = kColumns - (kColumnWidth + 1) - kColumnWidth * table.columns.size();
  out.line();
  write_heads(table, fmt::format("By {}, MiB", grouping_name(options.by)), &out);
  if (options.by == Grouping::module) {
    write_modules(table, options, &out);
  } else {
    write_list(table, options.moment, options, &out);
  }
  return out.take();
}

}  // namespace gpucast
