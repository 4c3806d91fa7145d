// A check as a comment on a pull request: the verdict and the table of limits; what grew is folded, open where a limit is broken.

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "src/base/bytes.h"
#include "src/check/reports.h"
#include "src/check/words.h"
#include "src/report/diff_reports.h"
#include "src/report/markdown_text.h"
#include "src/report/text_writer.h"

namespace gpucast::check {
namespace {

constexpr size_t kMostCommentBytes = 60000;  // GitHub allows 65,536 characters
constexpr size_t kMostPrintedEnd = 2000;

const char* mark_of(Outcome outcome) { return outcome == Outcome::passed ? "✅" : outcome == Outcome::broken ? "❌" : "➖"; }

bool is_broken(const LimitResult& limit) { return limit.outcome == Outcome::broken; }

std::string plain(std::string_view text) { return markdown_escaped(printable(text)); }

void write_limits(const CheckResult& result, std::string* out) {
  *out += "| job | card | figure | now | limit | |\n|---|---|---|---:|---|---|\n";
  for (const JobResult& job : result.jobs) {
    if (job.problem) fmt::format_to(std::back_inserter(*out), "| {} | | failed | | | ❌ |\n", plain(job.job.name));
    for (const CardResult& card : job.cards)
      for (const LimitResult& limit : card.limits)
        fmt::format_to(std::back_inserter(*out), "| {} | {} | {} | {} | {} | {} |\n", plain(job.job.name), plain(card_words(card, limit)),
                       figure_words(limit.limit.figure), plain(limit.now), plain(limit.most), mark_of(limit.outcome));
  }
}

void write_grown_table(const CheckResult& result, const JobResult& job, const CardResult& card, std::string* out) {
  const auto broken = [](const LimitResult& limit) { return is_broken(limit) && limit.limit.figure != Figure::step_time; };
  const bool open = std::any_of(card.limits.begin(), card.limits.end(), broken);
  fmt::format_to(std::back_inserter(*out), "\n<details{}>\n<summary>{}: peak reserved {}</summary>\n\n", open ? " open" : "",
                 plain(where_words(job, card)), plain(change_words(card.growth->peak_reserved)));
  *out += "| module | before | now | of that | requested in |\n|---|---:|---:|---|---|\n";
  for (const GrownModule& grown : card.grown) {
    const std::string line = line_words(result, job, grown);
    fmt::format_to(std::back_inserter(*out), "| {} | {} | {} | {} | {} |\n", markdown_code(module_words(grown)),
                   format_mib(grown.row.total.before_bytes), format_mib(grown.row.total.after_bytes),
                   category_changes(*card.growth, grown.row), line.empty() ? "" : markdown_code(line));
  }
  if (card.grown.empty()) *out += "\nNo module holds more at the peak of allocated.\n";
  if (!card.run_line.empty()) fmt::format_to(std::back_inserter(*out), "\nLook closer: {}\n", markdown_code(in_folder(job, card.run_line)));
  *out += "\n</details>\n";
}

void write_failed_job(const JobResult& job, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "\n**{} failed**: {}\n", plain(job.job.name), plain(problem_words(*job.problem)));
  if (job.printed.empty()) return;
  const std::string end = job.printed.substr(job.printed.size() - std::min(job.printed.size(), kMostPrintedEnd));
  *out += "\n<details>\n<summary>The end of what it printed</summary>\n\n<pre>";
  for (size_t begin = 0; begin < end.size();) {
    const size_t stop = std::min(end.find('\n', begin), end.size());
    *out += plain(std::string_view(end).substr(begin, stop - begin)) + "\n";
    begin = stop + 1;
  }
  *out += "</pre>\n\n</details>\n";
}

std::string details_of(const CheckResult& result, const JobResult& job) {
  std::string out;
  if (job.problem) write_failed_job(job, &out);
  for (const CardResult& card : job.cards) {
    if (std::any_of(card.limits.begin(), card.limits.end(), is_broken)) out += '\n';
    for (const LimitResult& limit : card.limits)
      if (is_broken(limit))
        fmt::format_to(std::back_inserter(out), "- **{}**: {}\n", plain(where_words(job, card, limit)), plain(limit.sentence));
    if (card.growth && card.growth->peak_reserved.change_bytes() > 0) write_grown_table(result, job, card, &out);
    for (const std::string& note : card.notes)
      fmt::format_to(std::back_inserter(out), "\n- {}: {}\n", plain(where_words(job, card)), plain(note));
  }
  return out;
}

}  // namespace

std::string check_markdown(const CheckResult& result) {
  std::string out = fmt::format("### {} GPU check: {}\n\n", result.exit_code() == 0 ? "✅" : "❌", headline(result));
  write_limits(result, &out);
  for (const JobResult& job : result.jobs) {
    const std::string details = details_of(result, job);
    if (out.size() + details.size() > kMostCommentBytes) {
      out += "\nFurther jobs are left out here; `gpucast check` shows them.\n";
      break;
    }
    out += details;
  }
  for (const std::string& note : result.notes) fmt::format_to(std::back_inserter(out), "\n- {}\n", plain(note));
  return out;
}

}  // namespace gpucast::check
