#include "src/report/time_words.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr double kFar = 3;             // a known step that differs from the expected one by this factor may belong to another job
constexpr double kFasterServer = 1.2;  // a smaller difference of two hosts is not worth a word
constexpr double kDisagreeing = 1.25;  // the median of steps over the quickest; a smaller difference is usual
constexpr double kWider = 1.3;         // a host that widens the interval by less is not worth a word
constexpr double kWaits = 0.05;        // a shorter wait for batches is not worth a word
constexpr double kIdle = 0.02;         // an idle card for less of the step is not worth a word
constexpr double kMuchUnknown = 0.05;  // less of the GPU's time in unknown work is not worth a word

std::string workers_text(int64_t workers) { return fmt::format("{} worker{}", workers, workers == 1 ? "" : "s"); }

}  // namespace

std::string interval_words(const CardTime& card) {
  if (card.step_measured) return "as you measured it";
  std::vector<std::string> wider;
  if (card.bound != StepBound::loader) {
    if (!card.measured_card) wider.emplace_back("only this card's datasheet is known");
    if (card.unknown_share >= kMuchUnknown)
      wider.push_back(fmt::format("{} of the GPU's time is in work of unknown kind", percent(card.unknown_share)));
    if (!card.estimated.empty())
      wider.push_back(fmt::format("{} of the card {}", fmt::join(card.estimated, ", "),
                                  card.estimated.size() == 1 ? "is an estimate" : "are estimates"));
    if (card.host_widens >= kWider) wider.emplace_back("the host's speed is not known");
  }
  return fmt::format("90 % within {} to {}{}{}", time_text(card.step.low_ns), time_text(card.step.high_ns),
                     wider.empty() ? "" : "; wider than usual, since ", fmt::join(wider, " and "));
}

std::string energy_text(double joules) {
  if (joules >= 1e4) return fmt::format("{:.1f} kJ", joules / 1e3);
  return fmt::format("{:.{}f} J", joules, joules >= 100 ? 0 : joules >= 10 ? 1 : 2);
}

std::string power_words(const CardTime& card) {
  if (!card.power) return "";
  const PowerRange& power = card.power->power;
  return fmt::format("power: about {:.0f} W ({:.0f} to {:.0f}), {} a step{}, estimated", power.expected_w, power.low_w, power.high_w,
                     energy_text(card.power->energy.expected_j), card.count > 1 ? fmt::format(" for each of {} cards", card.count) : "");
}

std::string known_words(const StepTimes& times) {
  if (!times.known) return "";
  const double ratio = times.known->step_ns / times.known->expected_ns;
  const bool far = ratio > kFar || ratio < 1 / kFar;
  return fmt::format("follows from {} measured on {}, where {} would have been expected{}", time_text(times.known->step_ns),
                     times.known->gpu_id, time_text(times.known->expected_ns), far ? ": so far apart, is it a step of this job?" : "");
}

std::string cost_words(const StepTimes& times, const CardTime& card) {
  const std::string price = card.price_per_hour <= 0 ? ""
                                                     : fmt::format(" at {} an hour{}", money_text(card.price_per_hour),
                                                                   card.count > 1 ? fmt::format(" for each of {} cards", card.count) : "");
  if (times.epoch_steps > 0) {
    return fmt::format("an epoch of {:.6g} steps takes {}{}", times.epoch_steps, long_time_text(card.epoch_ns),
                       price.empty() ? "" : fmt::format(" and costs {}{}", money_text(cost(card.epoch_ns, card)), price));
  }
  if (price.empty()) return "";
  return fmt::format("{} steps cost {}{}; --epoch-steps N says how many an epoch has", kStepsOfCost,
                     money_text(cost(kStepsOfCost * card.step.expected_ns, card)), price);
}

std::string money_text(double amount) {
  if (amount > 0 && amount < 0.01) return "below 0.01";
  return amount >= 100 ? fmt::format("{:.0f}", amount) : fmt::format("{:.3g}", amount);
}

std::string long_time_text(double ns) {
  if (ns >= 3600e9) return fmt::format("{:.3g} h", ns / 3600e9);
  return ns >= 60e9 ? fmt::format("{:.3g} min", ns / 60e9) : time_text(ns);
}

// "; it waits 40 % of the time for batches", where another limit is larger still.
std::string waiting_words(const CardTime& card) {
  if (!card.loader || card.loader->now.wait_share < kWaits) return "";
  return fmt::format("; it waits {:.0f} % of the time for batches", 100 * card.loader->now.wait_share);
}

std::string bound_words(const CardTime& card) {
  if (card.bound == StepBound::loader) {
    return fmt::format("loader-bound: a batch comes every {}, the GPU works {}, the host {}", time_text(card.loader->now.batch.expected_ns),
                       time_text(card.gpu_ns), time_text(card.host_ns));
  }
  if (card.bound == StepBound::host)
    return fmt::format("host-bound: the host works {}, the GPU {}{}", time_text(card.host_ns), time_text(card.gpu_ns), waiting_words(card));
  if (card.bound == StepBound::communication) {
    const RankStep& rank = card.job->captured[card.job->busiest];
    return fmt::format("communication-bound: rank {} computes {}, moves data {} and waits for others {}", rank.rank,
                       time_text(rank.compute_ns), time_text(rank.exposed_ns), time_text(rank.waiting_ns));
  }
  const double idle_ns = card.step.expected_ns - card.gpu_ns;
  const std::string idle = idle_ns > kIdle * card.step.expected_ns ? fmt::format(" and is idle {}", time_text(idle_ns)) : "";
  return fmt::format("GPU-bound: the GPU works {}{}, the host works {}{}", time_text(card.gpu_ns), idle, time_text(card.host_ns),
                     waiting_words(card));
}

std::string host_words(const StepTimes& times, const CardTime& card) {
  if (card.bound != StepBound::host || times.server_speed < kFasterServer) return "";
  return fmt::format("on this machine; the host of an A100 is about {0:.1f} times as fast: --cpu-speed {0:.1f}", times.server_speed);
}

std::string host_steps_words(const StepTimes& times) {
  if (!times.host_steps || times.host_steps->count < 3 || times.host_steps->middle_ns < kDisagreeing * times.host_steps->least_ns)
    return "";
  return fmt::format("the host's time differs: {} for the quickest parts of {} steps, {} in the median; the quickest count",
                     time_text(times.host_steps->least_ns), times.host_steps->count, time_text(times.host_steps->middle_ns));
}

std::string bound_words(const LoaderChoice& choice) {
  const bool limited = choice.bound == StepBound::loader && choice.limit != "workers" && !choice.limit.empty();
  return step_bound_name(choice.bound) + (limited ? fmt::format(" ({})", choice.limit) : "");
}

std::string loader_words(const LoaderFigures& figures) {
  return fmt::format(
      "DataLoader of {}: batches of {}, {}{}{}", printable(figures.dataset), figures.batch_size, workers_text(figures.script_workers),
      figures.script_workers > 0 ? fmt::format(", prefetch {}", figures.prefetch_factor) : "", figures.pin_memory ? ", pinned" : "");
}

std::string batch_words(const LoaderFigures& figures) {
  std::string parts;
  for (const auto& [name, ns] : figures.stages_ns) parts += fmt::format("{}{} {}", parts.empty() ? ": " : ", ", name, time_text(ns));
  if (figures.waits_share > 0.1) parts += fmt::format("; {:.0f} % of it waits, not computes", 100 * figures.waits_share);
  return fmt::format("a batch takes one process {}{}", time_text(figures.batch_ns), parts);
}

std::string read_words(const LoaderFigures& figures) {
  if (figures.read_bytes <= 1e5) return "";
  return fmt::format("it reads {:.1f} MB{}, {:.0f} % of that from memory{}", figures.read_bytes / 1e6,
                     figures.files >= 0.5 ? fmt::format(" in {:.0f} files", figures.files) : "", 100 * figures.cached_share,
                     figures.storage.empty() ? "" : fmt::format("; from {} that takes {}", figures.storage, time_text(figures.storage_ns)));
}

// "8 workers keep an a100-80 busy on this CPU; with your 2 it waits 61 % of the time".
std::string workers_advice(const LoaderFigures& figures, const CardTime& card) {
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

}  // namespace gpucast
