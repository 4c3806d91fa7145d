// `gpucast diff` for people: the verdict, the sums, then what changed row by row; at most 100 columns.

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "src/base/bytes.h"
#include "src/report/diff_reports.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kMostRows = 20, kMostCategories = 4, kCellColumns = 10, kSumColumns = 42;

std::string signed_mib(int64_t bytes, int digits) { return bytes == 0 ? "." : (bytes > 0 ? "+" : "") + mib(bytes, digits); }

std::string percent(const DiffBytes& bytes) {
  if (bytes.before_bytes == 0 || bytes.change_bytes() == 0) return "";
  return fmt::format("{:+.1f} %", 100 * static_cast<double>(bytes.change_bytes()) / static_cast<double>(bytes.before_bytes));
}

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

void sum_line(const std::string& what, const DiffBytes& bytes, TextWriter* out) {
  out->line(what + std::string(kSumColumns - width(what), ' ') +
            fmt::format("{:>14}{:>14}{:>14}  {:>9}", mib(bytes.before_bytes), mib(bytes.after_bytes), signed_mib(bytes.change_bytes(), 2),
                        percent(bytes)));
}

void side(const char* when, const DiffSide& side, TextWriter* out) {
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
  out->wrapped("          ", "peak at " + printable(where(side.peak)));
}

void sums(const Diff& d, TextWriter* out) {
  out->line();
  out->format("{:<{}}{:>14}{:>14}{:>14}", "MiB", kSumColumns, "before", "after", "change");
  sum_line(out->bold("Peak reserved"), d.peak_reserved, out);
  sum_line(out->bold("On the card in all"), d.device, out);
  sum_line(out->bold("Peak allocated"), d.peak_allocated, out);
  std::vector<DiffCategory> categories = d.categories;
  std::stable_sort(categories.begin(), categories.end(), [](const DiffCategory& a, const DiffCategory& b) {
    return std::llabs(a.bytes.change_bytes()) > std::llabs(b.bytes.change_bytes());
  });
  for (const DiffCategory& category : categories) {
    if (category.bytes.before_bytes != 0 || category.bytes.after_bytes != 0) sum_line("  " + words(category.name), category.bytes, out);
  }
  sum_line("  free, but reserved, at that moment", d.free_bytes, out);
}

// The categories that changed most get a column each, the others share one.
struct Columns {
  std::vector<size_t> own, shared;
};

Columns columns_of(const Diff& d, const std::vector<DiffRow>& rows) {
  std::vector<std::pair<int64_t, size_t>> changed;  // by all rows together, whatever its sign
  for (size_t c = 0; c < d.categories.size(); ++c) {
    int64_t bytes = 0;
    for (const DiffRow& row : rows) bytes += std::llabs(row.categories[c].change_bytes());
    if (bytes > 0) changed.emplace_back(-bytes, c);
  }
  std::sort(changed.begin(), changed.end());
  Columns out;
  for (size_t i = 0; i < changed.size(); ++i) {
    const bool shares = changed.size() > kMostCategories && i >= kMostCategories - 1;
    (shares ? out.shared : out.own).push_back(changed[i].second);
  }
  return out;
}

std::string cells(const Columns& columns, const DiffRow& row) {
  std::string text;
  for (const size_t c : columns.own) text += fmt::format("{:>{}}", signed_mib(row.categories[c].change_bytes(), 1), kCellColumns);
  if (columns.shared.empty()) return text;
  int64_t bytes = 0;
  for (const size_t c : columns.shared) bytes += row.categories[c].change_bytes();
  return text + fmt::format("{:>{}}", signed_mib(bytes, 1), kCellColumns);
}

// "intermediate gradients" in ten columns.
std::string short_name(const std::string& category) {
  static constexpr std::pair<const char*, const char*> kShort[] = {{"parameters", "params"},
                                                                   {"gradients", "grads"},
                                                                   {"optimizer_state", "optim."},
                                                                   {"activations", "activat."},
                                                                   {"intermediate_gradients", "int.grads"},
                                                                   {"temporaries", "tempor."},
                                                                   {"workspaces", "workspac."},
                                                                   {"unattributed", "unattrib."}};
  for (const auto& [name, text] : kShort) {
    if (category == name) return text;
  }
  return cut_end(category, kCellColumns - 1);
}

std::string row_name(const Diff& d, const DiffRow& row, size_t columns) {
  std::string end;
  if (d.by == Grouping::module && !row.type.empty()) end = fmt::format(" ({})", cut_end(printable(row.type), 24));
  if (row.presence != DiffPresence::both) end += std::string(", ") + diff_presence_name(row.presence);
  if (row.modules_below > 0) end += fmt::format(" with {} below", row.modules_below);
  const std::string name = row.name.empty() ? "(root)" : printable(row.name);
  if (width(end) + 8 > columns) end = cut_end(end, columns > 8 ? columns - 8 : 1);
  return cut_begin(name, columns - width(end)) + end;
}

void rows(const Diff& d, TextWriter* out) {
  std::vector<DiffRow> changed;
  int64_t same_bytes = 0, same = 0;
  const auto moved = [](const DiffBytes& bytes) { return bytes.change_bytes() != 0; };
  for (const DiffRow& row : d.rows) {
    const bool any = std::any_of(row.categories.begin(), row.categories.end(), moved);
    if (any) {
      changed.push_back(row);
    } else {
      ++same;
      same_bytes += row.total.after_bytes;
    }
  }
  out->line();
  if (changed.empty()) {
    out->wrapped("", fmt::format("By {}: no change ({} row{}).", grouping_name(d.by), same, same == 1 ? "" : "s"));
    return;
  }
  const Columns columns = columns_of(d, changed);
  const size_t cell_count = columns.own.size() + (columns.shared.empty() ? 0 : 1);
  const size_t name_columns = kColumns - kCellColumns * (3 + cell_count);
  std::string head = fmt::format("{:<{}}{:>{}}{:>{}}{:>{}}", fmt::format("By {}, MiB", grouping_name(d.by)), name_columns, "before",
                                 kCellColumns, "after", kCellColumns, "change", kCellColumns);
  for (const size_t c : columns.own) head += fmt::format("{:>{}}", short_name(d.categories[c].name), kCellColumns);
  if (!columns.shared.empty()) head += fmt::format("{:>{}}", "other", kCellColumns);
  out->line(head);
  const auto put = [&](const std::string& name, const DiffRow& row) {
    out->line(name + std::string(name_columns - std::min(name_columns, width(name)), ' ') +
              fmt::format("{:>{}}{:>{}}{:>{}}", mib(row.total.before_bytes, 1), kCellColumns, mib(row.total.after_bytes, 1), kCellColumns,
                          signed_mib(row.total.change_bytes(), 1), kCellColumns) +
              cells(columns, row));
  };
  DiffRow others;
  others.categories.resize(d.categories.size());
  for (size_t i = 0; i < changed.size(); ++i) {
    if (i < kMostRows) {
      put(row_name(d, changed[i], name_columns - 1), changed[i]);
      continue;
    }
    others.total.before_bytes += changed[i].total.before_bytes;
    others.total.after_bytes += changed[i].total.after_bytes;
    for (size_t c = 0; c < others.categories.size(); ++c) {
      others.categories[c].before_bytes += changed[i].categories[c].before_bytes;
      others.categories[c].after_bytes += changed[i].categories[c].after_bytes;
    }
  }
  if (changed.size() > kMostRows) put(fmt::format("{} others", changed.size() - kMostRows), others);
  if (same > 0) out->format("{} row{} without a change: {}", same, same == 1 ? "" : "s", format_bytes(same_bytes));
}

}  // namespace

std::string change_words(const DiffBytes& bytes) {
  const int64_t change = bytes.change_bytes();
  if (change == 0) return "no change";
  const std::string share = percent(bytes);
  return fmt::format("{}{}{}", change > 0 ? "+" : "", format_mib(change), share.empty() ? "" : fmt::format(" ({})", share));
}

std::string diff_verdict(const Diff& d) {
  const DiffBytes& bytes = d.peak_reserved;
  std::string text;
  if (bytes.change_bytes() == 0) {
    text = "Peak reserved is the same, " + format_mib(bytes.after_bytes);
  } else {
    const std::string share = percent(bytes);
    text = fmt::format("Peak reserved {} by {}{}, from {} to {}", bytes.change_bytes() > 0 ? "grew" : "fell",
                       format_mib(std::llabs(bytes.change_bytes())), share.empty() ? "" : fmt::format(" ({})", share),
                       format_mib(bytes.before_bytes), format_mib(bytes.after_bytes));
  }
  if (!d.fail_above) return text;
  return fmt::format("{}: {} the allowed {}", text, d.fail_above->exceeded ? "more than" : "within", d.fail_above->text);
}

std::string diff_text(const Diff& d, bool colour) {
  TextWriter out(colour);
  std::string mark;
  if (d.fail_above) mark = d.fail_above->exceeded ? out.paint("FAIL", "1;31") + " " : out.paint("OK", "1;32") + " ";
  out.wrapped(mark, diff_verdict(d));
  side("before", d.before, &out);
  side("after", d.after, &out);
  for (const std::string& note : d.notes) out.wrapped("  note    ", printable(note));
  sums(d, &out);
  rows(d, &out);
  return out.take();
}

}  // namespace gpucast
