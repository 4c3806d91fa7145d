// Step times for people: one card in full, several as a table.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "gpucast/step_time.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kRows = 10;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string workers_text(int64_t workers) { return fmt::format("{} worker{}", workers, workers == 1 ? "" : "s"); }

std::string bound_sentence(const CardTime& card) {
  if (card.bound == StepBound::loader) {
    return fmt::format("loader-bound: a batch comes every {}, the GPU works {}, the host {}", time_text(card.loader->now.batch.expected_ns),
                       time_text(card.gpu_ns), time_text(card.host_ns));
  }
  if (card.bound == StepBound::host)
    return fmt::format("host-bound: the host works {}, the GPU {}", time_text(card.host_ns), time_text(card.gpu_ns));
  return fmt::format("GPU-bound: the GPU works {}, the host {}", time_text(card.gpu_ns), time_text(card.host_ns));
}

void parts(TextWriter& out, const char* title, const std::vector<TimePart>& rows) {
  out.line();
  out.line(out.bold(fmt::format("{:<46}{:>12}{:>9}{:>11}{:>12}", title, "GPU time", "share", "launches", "ideal card")));
  for (size_t i = 0; i < rows.size() && i < kRows; ++i) {
    const TimePart& part = rows[i];
    out.format("  {:<44}{:>12}{:>9}{:>11}{:>12}", cut_begin(printable(part.name), 43), time_text(part.gpu_ns), percent(part.share),
               part.launches, part.gpu_ns > 0 ? percent(part.ideal_ns / part.gpu_ns) : "");
  }
}

// "8 workers keep an a100-80 busy on this CPU; with your 2 it waits 61 % of the time".
std::string advice(const LoaderFigures& figures, const CardTime& card) {
  const CardLoader& loader = *card.loader;
  const std::string cpu = fmt::format("{:g} core{}", figures.cores, figures.cores == 1 ? "" : "s");
  const bool own = figures.workers == figures.script_workers;
  const std::string waits =
      fmt::format("with {}{} it waits {:.0f} % of the time", own ? "your " : "", figures.workers, 100 * loader.now.wait_share);
  if (!loader.enough)
    return fmt::format("no number of workers keeps {} busy: {} of this CPU are too few, about {:.0f} would do; {}", card.gpu_id, cpu,
                       std::ceil(loader.cores_needed), waits);
  const std::string does = *loader.enough == 1 ? "keeps" : "keep";
  if (figures.workers >= *loader.enough || loader.now.wait_share < 0.03)
    return fmt::format(
        "{} {} {} busy on this CPU{}", workers_text(*loader.enough), does, card.gpu_id,
        figures.workers == *loader.enough ? "" : fmt::format("; so {} your {}", figures.workers == 1 ? "does" : "do", figures.workers));
  return fmt::format("{} {} {} busy on this CPU; {}", workers_text(*loader.enough), does, card.gpu_id, waits);
}

void loader(TextWriter& out, const LoaderFigures& figures, const CardTime& card) {
  out.line();
  if (figures.kind == LoaderKind::dataloader) {
    out.line(out.bold("Data pipeline"));
    out.wrapped("  ", fmt::format("DataLoader of {}: batches of {}, {}{}{}", printable(figures.dataset), figures.batch_size,
                                  workers_text(figures.script_workers),
                                  figures.script_workers > 0 ? fmt::format(", prefetch {}", figures.prefetch_factor) : "",
                                  figures.pin_memory ? ", pinned" : ""));
  }
  if (card.loader) {
    std::string parts;
    for (const auto& [name, ns] : figures.stages_ns) parts += fmt::format("{}{} {}", parts.empty() ? ": " : ", ", name, time_text(ns));
    if (figures.waits_share > 0.1) parts += fmt::format("; {:.0f} % of it waits, not computes", 100 * figures.waits_share);
    out.wrapped("  ", fmt::format("a batch takes one process {}{}", time_text(figures.batch_ns), parts));
    if (figures.read_bytes > 1e5) {
      out.wrapped(
          "  ", fmt::format(
                    "it reads {:.1f} MB{}, {:.0f} % of that from memory{}", figures.read_bytes / 1e6,
                    figures.files >= 0.5 ? fmt::format(" in {:.0f} files", figures.files) : "", 100 * figures.cached_share,
                    figures.storage.empty() ? "" : fmt::format("; from {} that takes {}", figures.storage, time_text(figures.storage_ns))));
    }
    out.line(out.bold(
        fmt::format("  {:>8}{:>16}{:>26}{:>14}{:>10}  {}", "workers", "a batch every", "9 of 10 within", "a step", "it waits", "bound")));
    for (const LoaderChoice& choice : card.loader->choices) {
      out.format(
          "  {:>8}{:>16}{:>26}{:>14}{:>10}  {}{}", fmt::format("{}{}", choice.workers == figures.workers ? "> " : "", choice.workers),
          time_text(choice.batch.expected_ns), time_text(choice.batch.low_ns) + " to " + time_text(choice.batch.high_ns),
          time_text(choice.step.expected_ns), fmt::format("{:.0f} %", 100 * choice.wait_share), step_bound_name(choice.bound),
          choice.bound == StepBound::loader && choice.limit != "workers" && !choice.limit.empty() ? fmt::format(" ({})", choice.limit)
                                                                                                  : "");
    }
    out.wrapped("  ", advice(figures, card));
  }
  for (const std::string& note : figures.notes)
    out.wrapped(figures.kind == LoaderKind::dataloader ? "  " : "Data pipeline: ", printable(note));
}

void one_card(TextWriter& out, const StepTimes& times, const CardTime& card) {
  out.line(out.bold(fmt::format("{} a step on {} ({})", time_text(card.step.expected_ns), card.gpu_id, card.gpu_name)));
  out.format("  9 of 10 within {} to {}{}", time_text(card.step.low_ns), time_text(card.step.high_ns),
             card.measured_card ? "" : "; wider, since only this card's datasheet is known");
  out.format("  {}", bound_sentence(card));
  if (card.samples_per_s > 0) {
    out.format("  {:.4g} samples/s{}", card.samples_per_s,
               card.tokens_per_s > 0 ? fmt::format(", {:.4g} tokens/s", card.tokens_per_s) : "");
  }
  out.format("  FLOPs utilisation: model {}, hardware {} (of {} at its datasheet's rate)", percent(card.model_flops_utilisation),
             percent(card.hardware_flops_utilisation), card.peak_precision);
  if (times.loader) loader(out, *times.loader, card);
  parts(out, "By phase", card.by_phase);
  parts(out, "By kind", card.by_kind);
  parts(out, "By module", card.by_module);
  out.line();
  out.line(out.bold(fmt::format("{:<46}{:>12}{:>9}{:>11}{:>12}", "Kernels", "GPU time", "share", "calls", "bound by")));
  for (size_t i = 0; i < card.kernels.size() && i < kRows; ++i) {
    const KernelTime& kernel = card.kernels[i];
    out.format("  {:<44}{:>12}{:>9}{:>11}{:>12}", cut_end(printable(kernel.name), 43), time_text(kernel.gpu_ns), percent(kernel.share),
               kernel.calls, kernel.bound);
    out.format("    {}", cut_end(kernel.sizes, 90));
  }
  out.line();
  out.format("{} of the launches have a known operator; {} of the GPU's time is in work of unknown kind", percent(times.coverage),
             percent(card.unknown_share));
  for (const KernelTime& kernel : card.kernels) {
    if (kernel.known || kernel.share < 0.01) continue;
    out.format("  unknown: {} ({}), taken by its bytes", cut_end(printable(kernel.name), 60), percent(kernel.share));
  }
}

}  // namespace

std::string step_times_text(const StepTimes& times, bool colour) {
  TextWriter out(colour);
  one_card(out, times, times.cards.front());
  if (times.cards.size() < 2) return out.take();
  out.line();
  out.line(out.bold(
      fmt::format("{:<14}{:>12}{:>24}{:>12}{:>12}{:>10}{:>10}", "Card", "a step", "9 of 10 within", "samples/s", "MFU", "GPU", "bound")));
  for (const CardTime& card : times.cards) {
    out.format("  {:<12}{:>12}{:>24}{:>12}{:>12}{:>10}{:>10}", card.gpu_id, time_text(card.step.expected_ns),
               time_text(card.step.low_ns) + " to " + time_text(card.step.high_ns),
               card.samples_per_s > 0 ? fmt::format("{:.4g}", card.samples_per_s) : "", percent(card.model_flops_utilisation),
               percent(std::min(1.0, card.gpu_ns / card.step.expected_ns)), step_bound_name(card.bound));
  }
  return out.take();
}

}  // namespace gpucast
