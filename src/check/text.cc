// The text report of a check: a table of limits, then each failure with what grew, in at most 100 columns.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>

#include "src/base/bytes.h"
#include "src/check/reports.h"
#include "src/check/words.h"
#include "src/report/diff_reports.h"
#include "src/report/text_writer.h"

namespace gpucast::check {
namespace {

constexpr size_t kMostGrownLines = 5, kMostPrintedBytes = 2000, kMostJobColumns = 30;

using TableLine = std::array<std::string, 6>;

const char* outcome_words(Outcome outcome) {
  return outcome == Outcome::passed ? "ok" : outcome == Outcome::broken ? "FAIL" : "not judged";
}

std::vector<TableLine> table_of(const CheckResult& result) {
  std::vector<TableLine> out = {{"job", "card", "figure", "now", "limit", "verdict"}};
  for (const JobResult& job : result.jobs) {
    std::string name = cut_end(printable(job.job.name), kMostJobColumns);
    if (job.problem) out.push_back({name, "", "", "", "", "FAILED"});
    for (const CardResult& card : job.cards) {
      std::string said;
      for (const LimitResult& limit : card.limits) {
        const std::string words = card_words(card, limit);
        out.push_back(
            {name, words == said ? "" : words, figure_words(limit.limit.figure), limit.now, limit.most, outcome_words(limit.outcome)});
        name = "";  // said once
        said = words;
      }
    }
  }
  return out;
}

void write_table(const CheckResult& result, TextWriter* out) {
  const std::vector<TableLine> lines = table_of(result);
  std::array<size_t, 6> columns{};
  for (const TableLine& line : lines)
    for (size_t c = 0; c < line.size(); ++c) columns[c] = std::max(columns[c], width(line[c]));
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string text;
    for (size_t c = 0; c < lines[i].size(); ++c) {
      const std::string blanks(columns[c] - width(lines[i][c]), ' ');
      const bool bad = c == 5 && lines[i][c].starts_with("FAIL");
      const std::string cell = bad ? out->paint(lines[i][c], "1;31") : i == 0 ? out->bold(lines[i][c]) : lines[i][c];
      const bool number = c == 3;
      text += (c == 0 ? "" : "  ") + (number ? blanks + cell : cell + blanks);
    }
    out->line(text);
  }
}

void write_grown(const CheckResult& result, const JobResult& job, const CardResult& card, TextWriter* out) {
  out->format("  what grew:   {} allocated at the peak", change_words(card.growth->peak_allocated));
  for (size_t i = 0; i < std::min(card.grown.size(), kMostGrownLines); ++i) {
    const GrownModule& grown = card.grown[i];
    out->wrapped(fmt::format("  {:>10}  ", fmt::format("+{}", format_bytes(grown.row.total.change_bytes()))),
                 fmt::format("{}: {}", module_words(grown), category_changes(*card.growth, grown.row)), 2);
    if (const std::string line = line_words(result, job, grown); !line.empty()) out->format("              {}", printable(line));
  }
  if (card.grown.size() > kMostGrownLines) out->format("              {} more: --format json", card.grown.size() - kMostGrownLines);
}

bool same_growth(const CardResult& a, const CardResult& b) {
  const auto same_row = [](const GrownModule& x, const GrownModule& y) {
    return x.row.name == y.row.name && x.row.total.change_bytes() == y.row.total.change_bytes() && x.frame == y.frame;
  };
  return a.growth && b.growth && a.growth->peak_allocated.change_bytes() == b.growth->peak_allocated.change_bytes() &&
         std::equal(a.grown.begin(), a.grown.end(), b.grown.begin(), b.grown.end(), same_row);
}

// `shown`: the card whose growth was shown last, of this job.
void write_failures(const CheckResult& result, const JobResult& job, const CardResult& card, const CardResult** shown, TextWriter* out) {
  bool broken = false, memory = false, growth = false;
  for (const LimitResult& limit : card.limits) {
    if (limit.outcome != Outcome::broken) continue;
    if (!broken) out->line();
    out->wrapped(out->paint("FAIL", "1;31") + " ", fmt::format("{}: {}", where_words(job, card, limit), limit.sentence));
    out->wrapped("     ", fmt::format("{} in {}", figure_name(limit.limit.figure), file_place(result.config, limit.limit.place)));
    broken = true;
    memory |= limit.limit.figure != Figure::step_time;
    growth |= limit.limit.figure == Figure::growth;
  }
  if (!broken) return;
  if (memory && card.growth && card.growth->peak_reserved.change_bytes() > 0) {
    if (*shown != nullptr && same_growth(card, **shown)) {
      out->format("  what grew:   the same as on {}", (*shown)->gpu_id);
    } else {
      write_grown(result, job, card, out);
      *shown = &card;
    }
  }
  const std::string command = in_folder(job, memory ? card.run_line : card.time_line);
  if (!command.empty()) out->format("  look closer: {}", printable(command));
  if (growth) out->format("  on purpose:  gpucast check --update-baseline, and commit {}", result.baseline);
}

void write_problem(const JobResult& job, TextWriter* out) {
  out->line();
  out->wrapped(out->paint("FAILED", "1;31") + " ", fmt::format("{}: {}", job.job.name, printable(job.problem->message)));
  if (!job.problem->where.empty()) out->wrapped("  where: ", printable(job.problem->where));
  if (!job.problem->to_do.empty()) out->wrapped("  to do: ", printable(job.problem->to_do));
  if (job.printed.empty()) return;
  out->line("  the end of what it printed:");
  const std::string printed = job.printed.substr(job.printed.size() - std::min(job.printed.size(), kMostPrintedBytes));
  for (size_t begin = 0; begin < printed.size();) {
    const size_t end = std::min(printed.find('\n', begin), printed.size());
    out->line("    " + cut_end(printable(std::string_view(printed).substr(begin, end - begin)), kColumns - 4));
    begin = end + 1;
  }
}

}  // namespace

std::string check_text(const CheckResult& result, bool colour) {
  TextWriter out(colour);
  const bool good = result.exit_code() == 0;
  out.wrapped(out.paint(good ? "OK" : "FAIL", good ? "1;32" : "1;31") + " ", headline(result));
  out.line();
  write_table(result, &out);
  for (const JobResult& job : result.jobs) {
    if (job.problem) write_problem(job, &out);
    const CardResult* shown = nullptr;
    for (const CardResult& card : job.cards) write_failures(result, job, card, &shown, &out);
  }
  std::vector<std::string> notes;
  for (const JobResult& job : result.jobs)
    for (const CardResult& card : job.cards)
      for (const std::string& note : card.notes) notes.push_back(fmt::format("{}: {}", where_words(job, card), note));
  notes.insert(notes.end(), result.notes.begin(), result.notes.end());
  if (result.baseline_written) notes.push_back(fmt::format("The baseline is written: commit {}.", result.baseline));
  if (!notes.empty()) out.line();
  for (const std::string& note : notes) out.wrapped("note: ", printable(note));
  return out.take();
}

}  // namespace gpucast::check
