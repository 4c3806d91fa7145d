// The text report of `gpucast diff`: the verdict, the sums, then the rows that changed, in at most 100 columns.

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/bytes.h"
#include "src/base/with_spaces.h"
#include "src/report/diff_reports.h"
#include "src/report/folded_layers.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kMostRows = 20, kMostChangedCategories = 4, kCellColumns = 9, kSumColumns = 42;

std::string signed_mib(int64_t bytes) { return bytes == 0 ? "." : (bytes > 0 ? "+" : "") + mib(bytes); }

std::string change_percent(const DiffBytes& bytes) {
  if (bytes.before_bytes == 0 || bytes.change_bytes() == 0) return "";
  return fmt::format("{:+.1f} %", 100 * static_cast<double>(bytes.change_bytes()) / static_cast<double>(bytes.before_bytes));
}

void write_sum_line(const std::string& what, const DiffBytes& bytes, TextWriter* out) {
  out->line(what + std::string(kSumColumns - width(what), ' ') +
            fmt::format("{:>14}{:>14}{:>14}  {:>9}", mib(bytes.before_bytes), mib(bytes.after_bytes), signed_mib(bytes.change_bytes()),
                        change_percent(bytes)));
}

void write_side(const char* when, const DiffSide& side, TextWriter* out) {
  std::string text = printable(side.file) + ": ";
  if (side.source == "snapshot") {
    text += "memory snapshot";
  } else {
    text += fmt::format("{}, {} optimizer step{}", side.source == "cpu_profile" ? "profiler trace" : "virtual GPU", side.steps,
                        side.steps == 1 ? "" : "s");
  }
  text += ", " + side.gpu_id;
  if (!side.torch.empty()) text += ", torch " + side.torch;
  out->wrapped(fmt::format("  {:<8}", when), text);
  out->wrapped("          ", "peak at " + printable(place_text(side.peak)));
}

void write_sums(const Diff& d, TextWriter* out) {
  out->line();
  out->format("{:<{}}{:>14}{:>14}{:>14}", "MiB", kSumColumns, "before", "after", "change");
  write_sum_line(out->bold("Peak reserved"), d.peak_reserved, out);
  write_sum_line(out->bold("On the card in all"), d.device, out);
  write_sum_line(out->bold("Peak allocated"), d.peak_allocated, out);
  std::vector<DiffCategory> categories = d.categories;
  std::stable_sort(categories.begin(), categories.end(), [](const DiffCategory& a, const DiffCategory& b) {
    return std::llabs(a.bytes.change_bytes()) > std::llabs(b.bytes.change_bytes());
  });
  for (const DiffCategory& category : categories) {
    if (category.bytes.before_bytes != 0 || category.bytes.after_bytes != 0)
      write_sum_line("  " + with_spaces(category.name), category.bytes, out);
  }
  write_sum_line("  free, but reserved, at the peak", d.free_bytes, out);
}

// Each of the categories that changed most has a column; the others share one.
struct Columns {
  std::vector<size_t> own, shared;
};

Columns columns_of(const Diff& d, const std::vector<DiffRow>& rows) {
  std::vector<std::pair<int64_t, size_t>> changed;  // absolute change, summed over all rows
  for (size_t c = 0; c < d.categories.size(); ++c) {
    int64_t bytes = 0;
    for (const DiffRow& row : rows) bytes += std::llabs(row.categories[c].change_bytes());
    if (bytes > 0) changed.emplace_back(-bytes, c);
  }
  std::sort(changed.begin(), changed.end());
  Columns out;
  for (size_t i = 0; i < changed.size(); ++i) {
    const bool shares = changed.size() > kMostChangedCategories && i >= kMostChangedCategories - 1;
    (shares ? out.shared : out.own).push_back(changed[i].second);
  }
  return out;
}

// The unit of the table of rows. A dot stands for nothing, so that changes are easy to see.
struct DiffUnit {
  int64_t bytes;
  const char* name;

  std::string cell(int64_t amount_bytes) const {
    return amount_bytes == 0 ? "." : fmt::format("{:.1f}", static_cast<double>(amount_bytes) / static_cast<double>(bytes));
  }
  std::string change(const DiffBytes& amounts) const {
    return amounts.change_bytes() == 0 ? "."
                                       : fmt::format("{:+.1f}", static_cast<double>(amounts.change_bytes()) / static_cast<double>(bytes));
  }
};

std::string cells(const Columns& columns, const DiffRow& row, const DiffUnit& unit) {
  std::string text;
  for (const size_t c : columns.own) text += fmt::format("{:>{}}", unit.change(row.categories[c]), kCellColumns);
  if (columns.shared.empty()) return text;
  DiffBytes shared;
  for (const size_t c : columns.shared) {
    shared.before_bytes += row.categories[c].before_bytes;
    shared.after_bytes += row.categories[c].after_bytes;
  }
  return text + fmt::format("{:>{}}", unit.change(shared), kCellColumns);
}

// The category's name in nine columns.
std::string short_name(const std::string& category) {
  static constexpr std::pair<const char*, const char*> kShort[] = {{"parameters", "params"},      {"gradients", "grads"},
                                                                   {"optimizer_state", "optim."}, {"parameter_copies", "copies"},
                                                                   {"activations", "activat."},   {"intermediate_gradients", "interm."},
                                                                   {"temporaries", "tempor."},    {"workspaces", "worksp."},
                                                                   {"communication", "commun."},  {"unattributed", "unattr."}};
  for (const auto& [name, text] : kShort) {
    if (category == name) return text;
  }
  return cut_end(category, kCellColumns - 1);
}

// The class is shown only if there is room. A path is cut at its beginning, because the end is more useful.
std::string row_name(const Diff& d, const DiffRow& row, size_t columns) {
  const std::string name = row.name.empty() ? "(root)" : printable(row.name);
  const std::string type = d.by == Grouping::module && !row.type.empty() ? fmt::format(" ({})", printable(row.type)) : "";
  std::string presence;
  if (row.presence != DiffPresence::both) presence = std::string(", ") + diff_presence_name(row.presence);
  if (row.modules_below > 0) presence += fmt::format(", {} below", row.modules_below);
  if (width(name) + width(type) + width(presence) <= columns) return name + type + presence;
  return cut_begin(name, columns - width(presence)) + presence;
}

int64_t largest_change(const DiffRow& row) {
  int64_t bytes = 0;
  for (const DiffBytes& category : row.categories) bytes = std::max<int64_t>(bytes, std::llabs(category.change_bytes()));
  return bytes;
}

void add_row(const DiffRow& row, DiffRow* sum) {
  const auto add_bytes = [](const DiffBytes& more, DiffBytes* bytes) {
    bytes->before_bytes += more.before_bytes;
    bytes->after_bytes += more.after_bytes;
  };
  add_bytes(row.total, &sum->total);
  sum->modules_below += row.modules_below;
  for (size_t c = 0; c < row.categories.size(); ++c) add_bytes(row.categories[c], &sum->categories[c]);
}

// Modules that differ by the number of their layer share a row.
std::vector<DiffRow> rows_of(const Diff& d) {
  if (d.by != Grouping::module) return d.rows;
  std::vector<DiffRow> out = folded_layers(
      d.rows, [](const DiffRow& row) { return std::pair(row.type, row.presence); }, add_row);
  std::stable_sort(out.begin(), out.end(), [](const DiffRow& a, const DiffRow& b) {
    return std::llabs(a.total.change_bytes()) > std::llabs(b.total.change_bytes());
  });
  return out;
}

// The rows that changed, in one unit. Changes below a twentieth of the unit share the last line.
void write_rows(const Diff& d, TextWriter* out) {
  std::vector<DiffRow> changed;
  int64_t same = 0, same_bytes = 0, largest = 0;
  for (const DiffRow& row : rows_of(d)) {
    const int64_t change = largest_change(row);
    largest = std::max(largest, change);
    if (change > 0) {
      changed.push_back(row);
    } else {
      ++same;
      same_bytes += row.total.after_bytes;
    }
  }
  out->line();
  if (changed.empty()) return out->format("By {}: no change ({} row{}).", grouping_name(d.by), same, same == 1 ? "" : "s");

  const DiffUnit unit = largest < kMiB ? DiffUnit{kKiB, "KiB"} : DiffUnit{kMiB, "MiB"};
  const Columns columns = columns_of(d, changed);
  const size_t cell_count = columns.own.size() + (columns.shared.empty() ? 0 : 1);
  const size_t name_columns = kColumns - kCellColumns * (3 + cell_count);
  const auto put = [&](const std::string& name, const DiffRow& row) {
    std::string text = name + std::string(name_columns - std::min(name_columns, width(name)), ' ');
    for (const std::string& cell : {unit.cell(row.total.before_bytes), unit.cell(row.total.after_bytes), unit.change(row.total)}) {
      text += fmt::format("{:>{}}", cell, kCellColumns);
    }
    out->line(text + cells(columns, row, unit));
  };
  std::string head = fmt::format("{:<{}}{:>{}}{:>{}}{:>{}}", fmt::format("By {}, {}", grouping_name(d.by), unit.name), name_columns,
                                 "before", kCellColumns, "after", kCellColumns, "change", kCellColumns);
  for (const size_t c : columns.own) head += fmt::format("{:>{}}", short_name(d.categories[c].name), kCellColumns);
  if (!columns.shared.empty()) head += fmt::format("{:>{}}", "other", kCellColumns);
  out->line(head);

  DiffRow others;
  others.categories.resize(d.categories.size());
  size_t lines = 0;
  for (const DiffRow& row : changed) {
    if (lines < kMostRows && largest_change(row) * 20 >= unit.bytes) {
      put(row_name(d, row, name_columns - 1), row);
      ++lines;
    } else {
      add_row(row, &others);
    }
  }
  if (lines < changed.size()) put(fmt::format("{} other{}", changed.size() - lines, changed.size() - lines == 1 ? "" : "s"), others);
  if (same > 0) out->format("{} row{} without a change: {}", same, same == 1 ? "" : "s", format_bytes(same_bytes));
}

}  // namespace

std::string change_words(const DiffBytes& bytes) {
  const int64_t change = bytes.change_bytes();
  if (change == 0) return "no change";
  const std::string share = change_percent(bytes);
  return fmt::format("{}{}{}", change > 0 ? "+" : "", format_mib(change), share.empty() ? "" : fmt::format(" ({})", share));
}

std::string diff_verdict(const Diff& d) {
  const DiffBytes& bytes = d.peak_reserved;
  std::string text;
  if (bytes.change_bytes() == 0) {
    text = "Peak reserved is the same, " + format_mib(bytes.after_bytes);
  } else {
    const std::string share = change_percent(bytes);
    text = fmt::format("Peak reserved {} by {}{}, from {} to {}", bytes.change_bytes() > 0 ? "grew" : "fell",
                       format_mib(std::llabs(bytes.change_bytes())), share.empty() ? "" : fmt::format(" ({})", share),
                       mib(bytes.before_bytes), format_mib(bytes.after_bytes));
  }
  if (!d.fail_above) return text;
  return fmt::format("{}: {} the allowed {}", text, d.fail_above->exceeded ? "above" : "within", d.fail_above->text);
}

std::string diff_text(const Diff& d, bool colour) {
  TextWriter out(colour);
  std::string mark;
  if (d.fail_above) mark = d.fail_above->exceeded ? out.paint("FAIL", "1;31") + " " : out.paint("OK", "1;32") + " ";
  out.wrapped(mark, diff_verdict(d));
  write_side("before", d.before, &out);
  write_side("after", d.after, &out);
  for (const std::string& note : d.notes) out.wrapped("  note    ", printable(note));
  write_sums(d, &out);
  write_rows(d, &out);
  return out.take();
}

}  // namespace gpucast
