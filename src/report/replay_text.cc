// The text report of `gpucast replay`: one table of at most 100 columns, and the meaning of its numbers below it.

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "gpucast/replay_report.h"
#include "src/base/bytes.h"
#include "src/base/command_words.h"
#include "src/report/text_writer.h"
#include "src/report/user_frame.h"

namespace gpucast {
namespace {

constexpr size_t kSettingColumns = 25, kTunedColumns = 36, kMostSaved = 3;

std::string mib_or(const std::optional<int64_t>& bytes, const char* otherwise) { return bytes ? mib(*bytes) : otherwise; }

std::string setting_name(const std::string& alloc_conf) { return alloc_conf.empty() ? "defaults" : alloc_conf; }

// A setting's cell, then the numbers. A setting that is too long has its own line or lines.
void write_table_row(const std::string& setting, size_t columns, const std::string& numbers, TextWriter* out) {
  if (setting.size() <= columns) return out->format("{:<{}}{}", setting, columns, numbers);
  out->wrapped("", setting);
  out->format("{:<{}}{}", "", columns, numbers);
}

void write_table(const ReplayReport& report, TextWriter* out) {
  constexpr const char* kRow = "{:>9}{:>10}{:>10}{:>6}{:>9}{:>10}{:>7}{:>8}{:>6}";
  constexpr const char* kHead = "{:<{}}{:>9}{:>10}{:>10}{:>6}{:>9}{:>17}{:>8}{:>6}";
  out->format(kHead, "", kSettingColumns, "", "peak", "peak", "", "largest", "unused", "", "");
  out->format(kHead, "MiB", kSettingColumns, "capacity", "allocated", "reserved", "segs", "unused", "at the peak", "retries", "OOM");
  for (const ReplayRow& row : report.rows) {
    const double per_cent = row.peak_reserved_bytes == 0
                                ? 0
                                : 100.0 * static_cast<double>(row.fragmentation_bytes) / static_cast<double>(row.peak_reserved_bytes);
    const std::string name = setting_name(row.alloc_conf);
    write_table_row(row.addresses == "recorded" ? "as recorded: " + name : name, kSettingColumns,
                    fmt::format(kRow, mib_or(row.capacity_bytes, "none"), mib(row.peak_allocated_bytes), mib(row.peak_reserved_bytes),
                                row.segments, mib(row.largest_free_block_bytes), mib(row.fragmentation_bytes),
                                fmt::format("{:.1f}%", per_cent), row.alloc_retries, row.ooms),
                    out);
  }
}

std::string event_and_place(const Place& place) {
  std::string text = fmt::format("event {}", place.event);
  if (!place.phase.empty()) text += ", " + place.phase;
  if (place.step > 0) text += fmt::format(", step {}", place.step);
  if (!place.module.empty()) text += ", in " + place.module;
  return text;
}

void write_saved_by(const ReplayOomReport& oom, TextWriter* out) {
  if (oom.saved_by.empty()) {
    out->wrapped("  saved by   ", fmt::format("none of the {} settings tried", oom.settings_tried));
    return;
  }
  for (size_t i = 0; i < std::min(oom.saved_by.size(), kMostSaved); ++i) {
    const SavedBy& saved = oom.saved_by[i];
    out->wrapped(i == 0 ? "  saved by   " : "             ",
                 fmt::format("{} (peak reserved {} MiB, {} driver calls, {} retries)", setting_name(saved.alloc_conf),
                             mib(saved.peak_reserved_bytes), saved.driver_calls, saved.alloc_retries));
  }
  if (oom.saved_by.size() > kMostSaved) out->format("             and {} more (--format json)", oom.saved_by.size() - kMostSaved);
}

void write_oom(const ReplayRow& row, TextWriter* out) {
  const ReplayOomReport& o = *row.oom;
  out->line();
  const std::string capacity = row.capacity_bytes ? fmt::format("capacity {} MiB", mib(o.capacity_bytes))
                                                  : fmt::format("reserved and free were {} MiB", mib(o.capacity_bytes));
  out->wrapped("Out of memory: ",
               fmt::format("{}, {}{}", setting_name(row.alloc_conf), o.recorded ? "as when it was recorded, " : "", capacity));
  out->wrapped("  where      ", event_and_place(o.place));
  if (const std::string frame = user_frame(o.place); !frame.empty()) out->wrapped("             at ", frame);
  out->wrapped("  requested  ", fmt::format("{} B; the allocator tried to get {} with {} free, {} reserved, {} of it allocated",
                                            o.requested_bytes, torch_size(o.segment_bytes), torch_size(o.free_bytes),
                                            torch_size(o.reserved_bytes), torch_size(o.allocated_bytes)));
  out->format("             largest unused block: {}", torch_size(o.largest_free_block_bytes));
  if (!o.message.empty()) out->wrapped("  message    ", o.message);
  if (o.stopped) out->format("  then       the replay ended there, as most programs do");
  if (row.ooms > 1) out->format("  then       {} more allocations failed", row.ooms - 1);
  write_saved_by(o, out);
  if (o.min_capacity_bytes) {
    std::string needs = fmt::format("at least {} MiB with these settings", mib(*o.min_capacity_bytes));
    if (o.min_capacity_expandable_bytes) {
      needs += fmt::format(", {} MiB with expandable_segments:True", mib(*o.min_capacity_expandable_bytes));
    }
    out->wrapped("  needs      ", needs);
  }
}

std::string export_line(const std::string& alloc_conf) {
  if (alloc_conf.empty()) return "unset PYTORCH_CUDA_ALLOC_CONF";
  return "export PYTORCH_CUDA_ALLOC_CONF=" + shell_quote({alloc_conf});
}

std::string signed_count(int64_t count) { return count > 0 ? fmt::format("{} more", count) : fmt::format("{} fewer", -count); }

void write_advice(const TuneReport& tune, TextWriter* out) {
  const TuneRow& own = tune.rows[tune.own];
  if (!tune.best) {
    if (!own.survives) return out->wrapped("None of these runs: ", "the job needs a larger card or a smaller batch");
    return out->wrapped("No change is worth it: ", tune.capacity_bytes ? "the settings that are there run, and no other needs fewer retries"
                                                                       : "nothing saves 2 MiB or more over the settings that are there");
  }
  const TuneRow& best = tune.rows[*tune.best];
  std::string gain;
  if (!own.survives) {
    gain = fmt::format("runs where {} runs out of memory", setting_name(own.alloc_conf));
  } else if (tune.capacity_bytes) {
    gain = fmt::format("{} retries instead of {}", best.alloc_retries, own.alloc_retries);
  } else {
    gain = fmt::format("reserves {} MiB less", mib(own.peak_reserved_bytes - best.peak_reserved_bytes));
  }
  out->wrapped("Best: ", fmt::format("{} {}", setting_name(best.alloc_conf), gain));
  std::string cost = best.driver_calls == own.driver_calls
                         ? "as many driver calls"
                         : signed_count(best.driver_calls - own.driver_calls) + " driver calls (each takes time)";
  cost += fmt::format(", {} MiB lost to rounding (now {})", mib(best.rounding_bytes), mib(own.rounding_bytes));
  out->wrapped("  it costs ", cost);
  out->format("  {}", export_line(best.alloc_conf));
}

void write_tuned(const TuneReport& tune, TextWriter* out) {
  const std::string at = !tune.capacity_bytes ? "without a limit"
                         : tune.gpu.empty()   ? fmt::format("at {} MiB", mib(*tune.capacity_bytes))
                                              : fmt::format("on {}: {} MiB", tune.gpu, mib(*tune.capacity_bytes));
  out->line();
  out->format("Settings tried {}", at);
  constexpr const char* kRow = "{:>12}{:>12}{:>11}{:>10}{:>9}{:>7}";
  out->format("{:<{}}{:>12}{:>12}{:>11}{:>10}{:>9}", "", kTunedColumns, "peak", "peak", "lost to", "driver", "");
  out->format("{:<{}}{:>12}{:>12}{:>11}{:>10}{:>9}{:>7}", "MiB", kTunedColumns, "reserved", "allocated", "rounding", "calls", "retries",
              "runs");
  // Settings that change nothing are named in one sentence, without rows.
  const auto same = [](const TuneRow& a, const TuneRow& b) {
    return a.survives == b.survives && a.peak_reserved_bytes == b.peak_reserved_bytes && a.peak_allocated_bytes == b.peak_allocated_bytes &&
           a.rounding_bytes == b.rounding_bytes && a.driver_calls == b.driver_calls && a.alloc_retries == b.alloc_retries;
  };
  std::string unchanged;
  for (size_t i = 0; i < tune.rows.size(); ++i) {
    const TuneRow& row = tune.rows[i];
    if (i != tune.own && same(row, tune.rows[tune.own])) {
      unchanged += (unchanged.empty() ? "" : "; ") + setting_name(row.alloc_conf);
      continue;
    }
    write_table_row(setting_name(row.alloc_conf) + (i == tune.own ? " (now)" : ""), kTunedColumns,
                    fmt::format(kRow, mib(row.peak_reserved_bytes), mib(row.peak_allocated_bytes), mib(row.rounding_bytes),
                                row.driver_calls, row.alloc_retries, row.survives ? "yes" : "no"),
                    out);
  }
  if (!unchanged.empty()) out->wrapped("  as now: ", unchanged);
  write_advice(tune, out);
}

}  // namespace

std::string torch_size(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes <= kKiB) return fmt::format("{} bytes", bytes);
  if (bytes <= kMiB) return fmt::format("{:.2f} KiB", value / static_cast<double>(kKiB));
  if (bytes <= kGiB) return fmt::format("{:.2f} MiB", value / static_cast<double>(kMiB));
  return fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB));
}

std::string replay_text(const ReplayReport& report) {
  TextWriter out;
  out.wrapped("", fmt::format("{}: {} events{}{}", report.file, report.events,
                              report.torch.empty() ? ", rules of the newest PyTorch" : ", rules of PyTorch " + report.torch,
                              report.partial ? ", a history that begins in the middle" : ""));
  out.line();
  write_table(report, &out);
  const ReplayRow& first = report.rows.front();
  if (first.matches_recorded) {
    out.line();
    out.format("replays to its own recorded segments: {}", *first.matches_recorded ? "yes" : "no");
    if (!*first.matches_recorded) {
      out.wrapped("  first difference: ", first.first_difference);
      out.wrapped("  ", "So the other rows are approximations: something outside the recording decided where blocks went.");
    }
  }
  for (const ReplayRow& row : report.rows) {
    if (!row.gpu.empty()) {
      out.line();
      out.format("{}: {} MiB is the card's memory minus its memory outside PyTorch's allocator", row.gpu, mib(*row.capacity_bytes));
      break;
    }
  }
  for (const ReplayRow& row : report.rows) {
    if (row.oom) write_oom(row, &out);
  }
  for (const TuneReport& tune : report.tuned) write_tuned(tune, &out);
  if (!report.warnings.empty()) out.line();
  for (const Warning& warning : report.warnings) out.wrapped("warning: ", warning.message);
  return out.take();
}

}  // namespace gpucast
