// The text report of a prediction: the verdict first, at most about 45 lines of 100 columns.

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <tuple>

#include "gpucast/report.h"
#include "src/base/bytes.h"
#include "src/base/command_words.h"
#include "src/base/with_spaces.h"
#include "src/report/growth_text.h"
#include "src/report/next_command.h"
#include "src/report/text_writer.h"
#include "src/report/user_frame.h"

namespace gpucast {
namespace {

constexpr size_t kMostWarnings = 6, kMostSteps = 5, kMostWarningLines = 3;
constexpr int64_t kMostNamedCards = 12;  // of each verdict

void write_verdict(const Prediction& p, TextWriter* out) {
  for (const FailedRank& failed : p.failed_ranks)
    out->wrapped(out->paint("FAILED", "1;31") + " ",
                 fmt::format("rank {} {}; what follows is of rank {}", failed.rank, failed.what, p.rank));
  if (p.partial) out->wrapped(out->paint("PARTIAL", "1;31") + " ", "the script died, and only the memory that it had reserved is known");
  const auto [words, colour] = headline_of(p.verdict);
  const std::string card = fmt::format("on {} ({}{}{})", p.gpu_id, p.gpu_name.empty() ? "" : p.gpu_name + ", ",
                                       format_bytes(p.gpu_total_bytes), p.gpu_chosen ? "" : ", since no card was named");
  out->line(fmt::format("{} {}", out->paint(words, colour), card));
  if (!p.verdict_reason.empty()) out->wrapped("  ", p.verdict_reason);
  if (p.growth && p.growth->oom_step && p.steps_total > 0)
    out->wrapped("  ", fmt::format("the job has {} steps: it {}", p.steps_total,
                                   runs_out_in_time(p) ? "runs out of memory before its end" : "ends before that"));
}

void write_run(const Prediction& p, TextWriter* out) {
  out->line();
  std::string command = shell_quote(p.command);
  if (command.size() > kColumns - 2) {
    size_t end = kColumns - 5;
    while (end > 0 && (static_cast<unsigned char>(command[end]) & 0xC0U) == 0x80U) --end;  // do not cut inside a character
    command = command.substr(0, end) + "...";
  }
  if (!command.empty()) out->line("  " + command);
  std::string what = p.source == "snapshot" ? fmt::format("memory snapshot, {} allocator event{}", p.events, p.events == 1 ? "" : "s")
                                            : fmt::format("{} optimizer step{}", p.steps, p.steps == 1 ? "" : "s");
  if (p.profile) {
    what = p.profile->method == "recorded" ? "profiler trace of a GPU, " + what
                                           : fmt::format("profiler trace of the CPU, method {}, {}", p.profile->method, what);
  }
  if (!p.torch.empty()) what += ", torch " + p.torch;
  if (p.world_size > 1) what += fmt::format(", rank {} of {}", p.rank, p.world_size);
  if (p.enforced_capacity) what += ", capacity enforced";
  out->line("  " + what);
  for (const WhatIf& what_if : p.what_if) {
    out->wrapped("  what if: ", fmt::format("{}{}{}", what_if.name, what_if.did.empty() ? "" : ": ", what_if.did));
  }
}

// 0.99 -> "99", 0.999 -> "99.9"
std::string hundredths(double share) { return fmt::format("{:g}", std::round(share * 1e6) / 1e4); }

void write_device(const Prediction& p, TextWriter* out) {
  out->line();
  out->line(fmt::format("{:<44}{:>14}   ({} to {})", out->bold("Device memory") + std::string(31, ' '), format_mib(p.device.expected_bytes),
                        format_mib(p.device.low_bytes), format_mib(p.device.high_bytes)));
  out->line(
      fmt::format("  {:<42}{:>14}   the allocator's segments", "reserved by PyTorch, at its peak", format_mib(p.peak_reserved.bytes)));
  for (const LedgerLine& entry : p.ledger) {
    const std::string what = entry.library.empty() ? entry.what : fmt::format("{}: {}", entry.library, entry.what);
    out->line(fmt::format("  {:<42}{:>14}", what, format_mib(entry.expected_bytes)));
    out->wrapped("      ", entry.source);
  }
  out->line(fmt::format("{}{:>14}   so that {} % of such jobs run", out->bold("What to ask for") + std::string(29, ' '),
                        format_mib(p.device.request_bytes), hundredths(p.confidence)));
  const auto said = std::find_if(p.ledger.begin(), p.ledger.end(), [&](const LedgerLine& entry) {
    return !p.request_source.empty() && entry.source.find(p.request_source) != std::string::npos;
  });
  out->wrapped("      ", said == p.ledger.end() ? p.request_source : "from the same rows as " + said->what + ", above");
  if (!p.min_capacity_bytes) return;
  out->line(fmt::format("{}{:>14}   cached memory given back as it goes", out->bold("Smallest card it runs on") + std::string(20, ' '),
                        format_mib(*p.min_capacity_bytes)));
  if (p.min_capacity_expandable_bytes && *p.min_capacity_expandable_bytes != *p.min_capacity_bytes) {
    out->line(fmt::format("  {:<42}{:>14}", "with expandable_segments:True", format_mib(*p.min_capacity_expandable_bytes)));
  }
}

void write_peaks(const Prediction& p, TextWriter* out) {
  out->line();
  const auto row = [&](const char* what, const PeakAt& peak) {
    out->wrapped(
        fmt::format("{}{}{:>14}   ", out->bold(what), std::string(44 - std::string_view(what).size(), ' '), format_mib(peak.bytes)),
        place_text(peak.place));
  };
  row("Peak allocated", p.peak_allocated);
  const std::string frame = user_frame(p.peak_allocated.place);
  if (!frame.empty()) out->line(fmt::format("{:61}at {}", "", cut_begin(frame, kColumns - 64)));
  row("Peak reserved", p.peak_reserved);
  if (p.gpu_time || p.loader_batch) out->line();
  if (p.gpu_time) {
    out->line(fmt::format("{}{:>14}   {} to {}; more: gpucast time", out->bold("GPU time of a step") + std::string(26, ' '),
                          time_text(p.gpu_time->expected_ns), time_text(p.gpu_time->low_ns), time_text(p.gpu_time->high_ns)));
  }
  if (p.loader_batch) {
    out->line(fmt::format("{}{:>14}   of its DataLoader with {} worker{}; more: gpucast time",
                          out->bold("A batch comes every") + std::string(25, ' '), time_text(p.loader_batch->expected_ns), p.loader_workers,
                          p.loader_workers == 1 ? "" : "s"));
  }
}

void write_categories(const Prediction& p, TextWriter* out) {
  out->line();
  out->line(out->bold("What is allocated at the peak"));
  std::vector<CategoryLine> lines;
  std::copy_if(p.categories.begin(), p.categories.end(), std::back_inserter(lines),
               [](const CategoryLine& line) { return line.bytes != 0; });
  std::stable_sort(lines.begin(), lines.end(), [](const CategoryLine& a, const CategoryLine& b) { return a.bytes > b.bytes; });
  for (const CategoryLine& line : lines) {
    const double share = static_cast<double>(line.bytes) / static_cast<double>(p.peak_allocated.bytes);
    out->line(fmt::format("  {:<42}{:>14}  {:>5.1f} %  {}", with_spaces(line.name), format_mib(line.bytes), 100 * share,
                          std::string(static_cast<size_t>(std::lround(share * 24)), '#')));
  }
  out->line(fmt::format("  {:<42}{:>14}", "free, but reserved", format_mib(p.free_but_reserved_bytes)));
}

std::string step_name(const Prediction& p, const StepPeak& peak) {
  if (peak.step == 0) return "before step 1";
  // The time between the last step and the end of the capture is not a step.
  if (!peak.complete && peak.step > 1 && (p.end_reason == "steps" || p.end_reason == "script_end"))
    return fmt::format("after step {}", peak.step - 1);
  return fmt::format("step {}{}", peak.step, peak.complete ? "" : " (not completed)");
}

void write_over_time(const Prediction& p, TextWriter* out) {
  if (p.step_peaks.empty()) return;
  out->line();
  out->line(fmt::format("{}{}{:>14}{:>16}", out->bold("Peaks"), std::string(39, ' '), "allocated", "reserved"));
  // If there are many: the first, the highest and the last.
  const size_t count = p.step_peaks.size();
  const auto lower = [](const StepPeak& a, const StepPeak& b) { return a.allocated_bytes < b.allocated_bytes; };
  const auto highest = static_cast<size_t>(std::max_element(p.step_peaks.begin(), p.step_peaks.end(), lower) - p.step_peaks.begin());
  bool skipped = false;
  for (size_t i = 0; i < count; ++i) {
    if (count > kMostSteps && i >= kMostSteps - 1 && i != highest && i != count - 1) {
      if (!skipped) out->line(fmt::format("  {}", "..."));
      skipped = true;
      continue;
    }
    skipped = false;
    const StepPeak& peak = p.step_peaks[i];
    out->line(fmt::format("  {:<42}{:>14}{:>16}", step_name(p, peak), format_mib(peak.allocated_bytes), format_mib(peak.reserved_bytes)));
  }
  std::string phases;
  for (const PhasePeak& peak : p.phase_peaks)
    phases += fmt::format("{}{} {}", phases.empty() ? "" : ", ", peak.phase, format_bytes(peak.allocated_bytes));
  if (!phases.empty()) out->wrapped("  allocated by phase: ", phases);
}

std::string rank_label(const Prediction& p, const RankLine& line) {
  return p.world_size > 1 ? fmt::format("rank {}, cuda:{}", line.rank, line.device) : fmt::format("cuda:{}", line.device);
}

// Consecutive ranks with the same figures share a line: "ranks 1 to 7".
void write_ranks(const Prediction& p, TextWriter* out) {
  if (!p.ranks) return;
  const std::vector<RankLine>& lines = p.ranks->lines;
  out->line();
  out->line(
      fmt::format("{}{}{:>14}{:>16}{:>16}", out->bold("Ranks and devices"), std::string(27, ' '), "allocated", "reserved", "to ask for"));
  const auto alike = [&](size_t a, size_t b) {
    const auto figures = [](const RankLine& l) { return std::tuple(l.allocated_bytes, l.reserved_bytes, l.request_bytes, l.verdict); };
    return figures(lines[a]) == figures(lines[b]) && a != p.ranks->judged && b != p.ranks->judged;
  };
  for (size_t first = 0; first < lines.size();) {
    size_t last = first;
    while (last + 1 < lines.size() && alike(first, last + 1)) ++last;
    std::string label = rank_label(p, lines[first]);
    if (last > first) label = fmt::format("{} to {}", label, rank_label(p, lines[last]));
    if (first == p.ranks->judged) label += ": this report";
    out->line(fmt::format("  {:<42}{:>14}{:>16}{:>16}  {}", label, format_mib(lines[first].allocated_bytes),
                          format_mib(lines[first].reserved_bytes), format_mib(lines[first].request_bytes),
                          lines[first].verdict == p.verdict ? "" : headline_of(lines[first].verdict).words));
    first = last + 1;
  }
  std::string differences;
  for (const CategoryDifference& difference : p.ranks->differences) {
    differences += fmt::format("{}{} {}{}", differences.empty() ? "" : ", ", with_spaces(difference.name), difference.bytes > 0 ? "+" : "-",
                               format_mib(std::abs(difference.bytes)));
  }
  if (!differences.empty())
    out->wrapped("  ", fmt::format("{} compared with {}, at its peak: {}", rank_label(p, lines[p.ranks->judged]),
                                   rank_label(p, lines[p.ranks->least]), differences));
}

std::string fate_words(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> kWords[] = {{"kept", "on the GPU too"},
                                                                        {"host", "stays in the host's memory"},
                                                                        {"kernel_scratch", "scratch space of the CPU's kernels"},
                                                                        {"other_kernel", "CUDA computes it another way"},
                                                                        {"optimizer_loop", "temporaries of the optimizer's loop"},
                                                                        {"outside_operators", "not of a module's operator"},
                                                                        {"before_trace", "from before the trace, use unknown"},
                                                                        {"not_modelled", "not looked at by this method"}};
  for (const auto& [fate, words] : kWords) {
    if (fate == name) return words;
  }
  return std::string(name);
}

// All bytes that the trace allocates, by what happened to them.
void write_profile(const Prediction& p, TextWriter* out) {
  if (!p.profile || p.profile->method == "recorded") return;
  out->line();
  out->line(fmt::format("{}{:>16}{:>14}", out->bold("What the trace allocates in all") + std::string(13, ' '), format_mib(p.profile->bytes),
                        fmt::format("{} blocks", p.profile->blocks)));
  for (const ProfileBytesLine& line : p.profile->fates) {
    if (line.blocks > 0) out->line(fmt::format("  {:<42}{:>16}{:>14}", fate_words(line.name), format_mib(line.bytes), line.blocks));
  }
  out->line(
      fmt::format("  {:<42}{:>16}{:>14}", "added for CUDA's own allocations", format_mib(p.profile->added_bytes), p.profile->added_blocks));
}

void write_cards(const Prediction& p, TextWriter* out) {
  if (std::all_of(p.cards.begin(), p.cards.end(), [](const CardFit& card) { return card.verdict == Verdict::none; })) return;
  out->line();
  out->line(out->bold("Cards it fits"));
  bool other = false;
  const auto list = [&](const char* what, Verdict verdict) {
    std::string names;
    const auto count = std::ranges::count(p.cards, verdict, &CardFit::verdict);
    int64_t listed = 0;
    for (const CardFit& card : p.cards) {
      if (card.verdict != verdict) continue;
      // The cards are in the order of their memory: the ones near the limit are named.
      const int64_t at = listed++;
      if (verdict == Verdict::fits ? at >= kMostNamedCards : at < count - kMostNamedCards) continue;
      names += fmt::format("{}{}{}", names.empty() ? "" : ", ", card.gpu, card.same_capability ? "" : "*");
      other = other || !card.same_capability;
    }
    const char* others = verdict == Verdict::fits ? "more memory" : "less memory";
    if (count > kMostNamedCards) names += fmt::format(" and {} with {}", count - kMostNamedCards, others);
    if (!names.empty()) out->wrapped(fmt::format("  {:<14}", what), names);
  };
  list("fits", Verdict::fits);
  list("tight", Verdict::tight);
  list("grows", Verdict::grows);
  list("does not fit", Verdict::does_not_fit);
  if (other)
    out->wrapped("  * ",
                 "of another capability class: its libraries choose other kernels and workspaces, so run with --gpu for the exact answer");
}

void write_warnings(const Prediction& p, TextWriter* out) {
  if (p.warnings.empty()) return;
  out->line();
  for (size_t i = 0; i < p.warnings.size(); ++i) {
    if (i == kMostWarnings) {
      out->line(fmt::format("  ... and {} more (--format json)", p.warnings.size() - i));
      break;
    }
    out->wrapped("warning: ", p.warnings[i].message, kMostWarningLines);
  }
}

void write_next_commands(const Prediction& p, const TextOptions& options, TextWriter* out) {
  const std::vector<NextCommand> commands = next_commands(p, options.capture_path);
  if (!commands.empty()) out->line();
  for (const NextCommand& command : commands) out->line(fmt::format("next, {}\n  {}", command.why, command.command));
}

}  // namespace

std::string text_report(const Prediction& prediction, const TextOptions& options) {
  TextWriter out(options.colour);
  write_verdict(prediction, &out);
  write_run(prediction, &out);
  if (prediction.growth) write_growth(*prediction.growth, &out);
  write_ranks(prediction, &out);
  write_device(prediction, &out);
  if (!prediction.partial) {  // else the allocated bytes are not known
    write_peaks(prediction, &out);
    write_categories(prediction, &out);
    write_over_time(prediction, &out);
  }
  write_profile(prediction, &out);
  write_cards(prediction, &out);
  write_warnings(prediction, &out);
  write_next_commands(prediction, options, &out);
  return out.take();
}

}  // namespace gpucast
