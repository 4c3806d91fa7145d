// A diff as a comment on a pull request: the verdict and three figures; all other parts are folded.

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "src/base/bytes.h"
#include "src/base/with_spaces.h"
#include "src/report/diff_reports.h"
#include "src/report/markdown_text.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kMostMarkdownRows = 40;  // GitHub allows 65,536 characters in a comment

void write_table_line(std::string_view what, const DiffBytes& bytes, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "| {} | {} | {} | {} |\n", what, format_mib(bytes.before_bytes), format_mib(bytes.after_bytes),
                 change_words(bytes));
}

void write_table_head(std::string_view what, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "| {} | before | after | change |\n|---|---:|---:|---:|\n", what);
}

void open_fold(std::string_view summary, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "\n<details>\n<summary>{}</summary>\n\n", summary);
}
void close_fold(std::string* out) { *out += "\n</details>\n"; }

std::string row_name(const Diff& d, const DiffRow& row) {
  std::string out = row.name.empty() ? "(root)" : markdown_code(row.name);
  if (d.by == Grouping::module && !row.type.empty())
    out += fmt::format(" ({})", markdown_escaped(cut_end(printable(row.type), kMarkdownNameColumns)));
  if (row.presence != DiffPresence::both) out += fmt::format(", **{}**", diff_presence_name(row.presence));
  if (row.modules_below > 0) out += fmt::format(", {} below", row.modules_below);
  return out;
}

void write_rows(const Diff& d, std::string* out) {
  std::vector<const DiffRow*> changed;
  for (const DiffRow& row : d.rows) {
    if (!category_changes(d, row).empty()) changed.push_back(&row);
  }
  open_fold(fmt::format("By {}: {} of {} rows changed", grouping_name(d.by), changed.size(), d.rows.size()), out);
  if (!changed.empty()) {
    fmt::format_to(std::back_inserter(*out), "| {} | before | after | change | of that |\n|---|---:|---:|---:|---|\n", grouping_name(d.by));
    for (size_t i = 0; i < std::min(changed.size(), kMostMarkdownRows); ++i) {
      const DiffRow& row = *changed[i];
      fmt::format_to(std::back_inserter(*out), "| {} | {} | {} | {} | {} |\n", row_name(d, row), format_mib(row.total.before_bytes),
                     format_mib(row.total.after_bytes), change_words(row.total), category_changes(d, row));
    }
    if (changed.size() > kMostMarkdownRows) {
      fmt::format_to(std::back_inserter(*out), "\n{} smaller changes are left out; `--format json` has them all.\n",
                     changed.size() - kMostMarkdownRows);
    }
  } else {
    *out += "No change.\n";
  }
  close_fold(out);
}

void write_side(const char* when, const DiffSide& side, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "- {}: {}, {}, {}{}, {} step{}; peak at {}\n", when, markdown_code(side.file),
                 markdown_escaped(side.source), markdown_escaped(side.gpu_id),
                 side.torch.empty() ? "" : ", torch " + markdown_escaped(side.torch), side.steps, side.steps == 1 ? "" : "s",
                 markdown_escaped(cut_end(printable(place_text(side.peak)), kMarkdownNameColumns)));
}

}  // namespace

std::string category_changes(const Diff& d, const DiffRow& row) {
  std::vector<std::pair<int64_t, size_t>> changed;
  for (size_t c = 0; c < row.categories.size(); ++c) {
    const int64_t change = row.categories[c].change_bytes();
    if (change != 0) changed.emplace_back(-std::llabs(change), c);
  }
  std::sort(changed.begin(), changed.end());
  std::string out;
  for (const auto& [unused, c] : changed) {
    const int64_t change = row.categories[c].change_bytes();
    out +=
        fmt::format("{}{} {}{}", out.empty() ? "" : ", ", with_spaces(d.categories[c].name), change > 0 ? "+" : "", format_bytes(change));
  }
  return out;
}

std::string diff_markdown(const Diff& d) {
  const char* mark = !d.fail_above ? "" : d.fail_above->exceeded ? "❌ " : "✅ ";
  std::string out = fmt::format("### {}GPU memory: {}\n\n", mark, markdown_escaped(diff_verdict(d)));
  write_table_head("", &out);
  write_table_line("Peak reserved", d.peak_reserved, &out);
  write_table_line("Peak allocated", d.peak_allocated, &out);
  write_table_line("On the card in all", d.device, &out);
  if (!d.notes.empty()) out += '\n';
  for (const std::string& note : d.notes) out += fmt::format("- {}\n", markdown_escaped(printable(note)));

  open_fold("By category, at the peak of allocated", &out);
  write_table_head("category", &out);
  std::vector<DiffCategory> categories = d.categories;
  std::stable_sort(categories.begin(), categories.end(), [](const DiffCategory& a, const DiffCategory& b) {
    return std::llabs(a.bytes.change_bytes()) > std::llabs(b.bytes.change_bytes());
  });
  for (const DiffCategory& category : categories) {
    if (category.bytes.before_bytes != 0 || category.bytes.after_bytes != 0)
      write_table_line(with_spaces(category.name), category.bytes, &out);
  }
  write_table_line("free, but reserved, at the peak", d.free_bytes, &out);
  close_fold(&out);
  write_rows(d, &out);
  open_fold("What was compared", &out);
  write_side("before", d.before, &out);
  write_side("after", d.after, &out);
  close_fold(&out);
  return out;
}

}  // namespace gpucast
