// The text report of `gpucast time`: one card in detail, several as a table.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "gpucast/step_time.h"
#include "src/base/command_words.h"
#include "src/report/folded_layers.h"
#include "src/report/job_step_text.h"
#include "src/report/text_writer.h"
#include "src/report/time_words.h"

namespace gpucast {
namespace {

constexpr size_t kTimeRows = 10;
constexpr double kJoulesPerKwh = 3.6e6;

// "By module, 10 of 62"
std::string title_of(const char* title, size_t rows) {
  return rows > kTimeRows ? fmt::format("{}, {} of {}", title, kTimeRows, rows) : title;
}

void write_parts(TextWriter& out, const char* title, const std::vector<TimePart>& rows) {
  out.line();
  out.line(
      out.bold(fmt::format("{:<46}{:>12}{:>9}{:>11}{:>12}", title_of(title, rows.size()), "GPU time", "share", "launches", "ideal card")));
  for (size_t i = 0; i < rows.size() && i < kTimeRows; ++i) {
    const TimePart& part = rows[i];
    out.format("  {:<44}{:>12}{:>9}{:>11}{:>12}", cut_begin(printable(part.name), 43), time_text(part.gpu_ns), percent(part.share),
               part.launches, part.gpu_ns > 0 ? percent(part.ideal_ns / part.gpu_ns) : "");
  }
}

std::vector<TimePart> of_all_layers(const std::vector<TimePart>& modules) {
  std::vector<TimePart> out = folded_layers(
      modules, [](const TimePart&) { return 0; },
      [](const TimePart& part, TimePart* sum) {
        sum->gpu_ns += part.gpu_ns;
        sum->ideal_ns += part.ideal_ns;
        sum->share += part.share;
        sum->launches += part.launches;
      });
  std::stable_sort(out.begin(), out.end(), [](const TimePart& a, const TimePart& b) { return a.gpu_ns > b.gpu_ns; });
  return out;
}

void write_loader(TextWriter& out, const LoaderFigures& figures, const CardTime& card) {
  out.line();
  if (figures.kind == LoaderKind::dataloader) {
    out.line(out.bold("Data pipeline"));
    out.wrapped("  ", loader_words(figures));
  }
  if (card.loader) {
    out.wrapped("  ", batch_words(figures));
    if (const std::string reads = read_words(figures); !reads.empty()) out.wrapped("  ", reads);
    out.line(out.bold(
        fmt::format("  {:>8}{:>16}{:>26}{:>14}{:>10}  {}", "workers", "a batch every", "90 % within", "a step", "it waits", "bound")));
    for (const LoaderChoice& choice : card.loader->choices) {
      out.format("  {:>8}{:>16}{:>26}{:>14}{:>10}  {}",
                 fmt::format("{}{}", choice.workers == figures.workers ? "now: " : "", choice.workers), time_text(choice.batch.expected_ns),
                 time_text(choice.batch.low_ns) + " to " + time_text(choice.batch.high_ns), time_text(choice.step.expected_ns),
                 fmt::format("{:.0f} %", 100 * choice.wait_share), bound_words(choice));
    }
    out.wrapped("  ", workers_advice(figures, card));
  }
  for (const std::string& note : figures.notes)
    out.wrapped(figures.kind == LoaderKind::dataloader ? "  " : "Data pipeline: ", printable(note));
}

void write_run(TextWriter& out, const WholeRun& run, const CardTime& card) {
  out.line();
  const std::string epochs = run.passes > 0 ? fmt::format(", {:.4g} passes over the data", run.passes) : "";
  out.line(out.bold(fmt::format("The whole run: {}{} ({:.0f} steps{})", run.complete ? "" : "more than ",
                                long_time_text(run.wall.expected_ns), run.steps, epochs)));
  out.format("  90 % within {} to {}{}", long_time_text(run.wall.low_ns), long_time_text(run.wall.high_ns),
             card.price_per_hour > 0 ? fmt::format("; it costs {}", money_text(cost(run.wall.expected_ns, card))) : "");
  if (run.energy)
    out.format("  about {:.3g} kWh ({:.3g} to {:.3g}) for the card, estimated", run.energy->expected_j / kJoulesPerKwh,
               run.energy->low_j / kJoulesPerKwh, run.energy->high_j / kJoulesPerKwh);
  for (const RunPart& part : run.parts)
    out.format("  {:<24}{:>16}{:>9}{:>12}", part.name, long_time_text(part.ns), percent(part.ns / run.wall.expected_ns),
               part.count > 0 ? fmt::format("{:.0f}", part.count) : "");
  for (const std::string& note : run.notes) out.wrapped("  ", note);
}

void write_card(TextWriter& out, const StepTimes& times, const CardTime& card) {
  out.line(out.bold(fmt::format("{} a step on {} ({})", time_text(card.step.expected_ns), card.gpu_id, card.gpu_name)));
  if (card.job) write_missing(out, *card.job);
  out.format("  {}", interval_words(card));
  out.format("  {}", bound_words(card));
  if (const std::string words = host_words(times, card); !words.empty()) out.format("  {}", words);
  if (const std::string words = host_steps_words(times); !words.empty()) out.format("  {}", words);
  if (card.samples_per_s > 0) {
    out.format("  {} samples/s{}{}", rate_text(card.samples_per_s),
               card.tokens_per_s > 0 ? fmt::format(", {} tokens/s", rate_text(card.tokens_per_s)) : "",
               card.job ? fmt::format(", all {} ranks together", card.job->ranks) : "");
  }
  if (const std::string words = cost_words(times, card); !words.empty()) out.format("  {}", words);
  if (const std::string words = power_words(card); !words.empty()) out.format("  {}", words);
  if (const std::string words = known_words(times); !words.empty()) out.format("  {}", words);
  out.format("  FLOPs utilisation: model {}, hardware {} (of {} at its datasheet's rate)", percent(card.model_flops_utilisation),
             percent(card.hardware_flops_utilisation), card.peak_precision);
  if (card.job) write_job(out, *card.job, card.bound == StepBound::loader);
  if (times.loader) write_loader(out, *times.loader, card);
  write_parts(out, "By phase", card.by_phase);
  write_parts(out, "By kind", card.by_kind);
  write_parts(out, "By module", of_all_layers(card.by_module));
  out.line();
  out.line(out.bold(
      fmt::format("{:<46}{:>12}{:>9}{:>11}{:>12}", title_of("Kernels", card.kernels.size()), "GPU time", "share", "calls", "bound by")));
  for (size_t i = 0; i < card.kernels.size() && i < kTimeRows; ++i) {
    const KernelTime& kernel = card.kernels[i];
    out.format("  {:<44}{:>12}{:>9}{:>11}{:>12}", cut_end(printable(kernel.name), 43), time_text(kernel.gpu_ns), percent(kernel.share),
               kernel.calls, kernel.bound);
    out.format("    {}", cut_end(kernel.sizes, 90));
  }
  out.line();
  out.line("ideal card: the time at the datasheet's rates, as a share of the predicted time");
  out.format("{} of the launches have a known operator; {} of the GPU's time is in work of unknown kind", percent(times.coverage),
             percent(card.unknown_share));
  for (const KernelTime& kernel : card.kernels) {
    if (kernel.known || kernel.share < 0.01) continue;
    out.format("  unknown: {} ({}), estimated from its bytes", cut_end(printable(kernel.name), 60), percent(kernel.share));
  }
}

void write_cards(TextWriter& out, const StepTimes& times) {
  out.line();
  // A line has only 100 characters. If prices are given, it has an epoch's time and cost instead of the card's utilisation.
  const bool epochs = times.epoch_steps > 0;
  const bool prices = std::any_of(times.cards.begin(), times.cards.end(), [](const CardTime& card) { return card.price_per_hour > 0; });
  const std::string paid = epochs ? "it costs" : fmt::format("{} cost", kStepsOfCost);
  const auto last = [&](const std::string& first, const std::string& second) { return fmt::format("{:>12}{:>12}", first, second); };
  out.line(out.bold(fmt::format("{:<14}{:>12}{:>24}{:>12}{}{:>10}", "Card", "a step", "90 % within", "samples/s",
                                prices ? last(epochs ? "an epoch" : "", paid) : fmt::format("{:>12}{:>10}", "MFU", "GPU"), "bound")));
  for (const CardTime& card : times.cards) {
    const double paid_ns = epochs ? card.epoch_ns : kStepsOfCost * card.step.expected_ns;
    const std::string money = card.price_per_hour > 0 ? money_text(cost(paid_ns, card)) : "";
    out.format("  {:<12}{:>12}{:>24}{:>12}{}{:>10}", card.gpu_id, time_text(card.step.expected_ns),
               time_text(card.step.low_ns) + " to " + time_text(card.step.high_ns),
               card.samples_per_s > 0 ? rate_text(card.samples_per_s) : "",
               prices ? last(epochs ? long_time_text(card.epoch_ns) : "", money)
                      : fmt::format("{:>12}{:>10}", percent(card.model_flops_utilisation),
                                    percent(std::min(1.0, card.gpu_ns / card.step.expected_ns))),
               step_bound_name(card.bound));
  }
}

// The whole training of a command on one card. `times.run` is this report's.
void write_next(TextWriter& out, const StepTimes& times) {
  const CardTime& card = times.cards.front();
  if (times.run || card.job || times.command.empty()) return;
  out.line();
  out.line("next, the whole training with its evaluations:");
  out.format("  gpucast time --run --gpu {} -- {}", card.gpu_id, printable(shell_quote(times.command)));
}

}  // namespace

std::string step_times_text(const StepTimes& times, bool colour) {
  TextWriter out(colour);
  write_card(out, times, times.cards.front());
  if (times.run) write_run(out, *times.run, times.cards.front());
  if (!times.scale.empty()) write_scale(out, times.scale);
  if (times.cards.size() > 1) write_cards(out, times);
  write_next(out, times);
  return out.take();
}

}  // namespace gpucast
