// Step times for scripts. docs/reference/time.md is the contract.

#include <utility>

#include "gpucast/step_time.h"
#include "src/base/json.h"
#include "src/report/json_parts.h"

namespace gpucast {
namespace {

constexpr size_t kMostTimedKernels = 50;

Json part_json(const TimePart& part) {
  return {{"name", part.name},         {"gpu_ns", part.gpu_ns}, {"share", part.share}, {"ideal_ns", part.ideal_ns},
          {"launches", part.launches}, {"flops", part.flops},   {"bytes", part.bytes}};
}

Json parts_json(const std::vector<TimePart>& parts) {
  Json out = Json::array();
  for (const TimePart& part : parts) out.push_back(part_json(part));
  return out;
}

Json kernel_json(const KernelTime& kernel) {
  return {{"name", kernel.name},   {"kernel", kernel.kernel},     {"kind", kernel.kind},         {"sizes", kernel.sizes},
          {"bound", kernel.bound}, {"calls", kernel.calls},       {"launches", kernel.launches}, {"gpu_ns", kernel.gpu_ns},
          {"share", kernel.share}, {"ideal_ns", kernel.ideal_ns}, {"known", kernel.known}};
}

Json unknown_operators_json(const std::vector<UnknownOperator>& operators) {
  Json out = Json::array();
  for (const UnknownOperator& one : operators) out.push_back({{"name", one.name}, {"launches", one.launches}, {"share", one.share}});
  return out;
}

Json choice_json(const LoaderChoice& choice) {
  return {{"workers", choice.workers},
          {"batch", time_range_json(choice.batch)},
          {"step", time_range_json(choice.step)},
          {"bound", step_bound_name(choice.bound)},
          {"limit", choice.limit.empty() ? Json() : Json(choice.limit)},
          {"wait_share", choice.wait_share}};
}

// The loader's figures, and its effect on this card's step.
Json loader_json(const LoaderFigures& figures, const CardTime& card) {
  static constexpr std::pair<LoaderKind, const char*> kKinds[] = {
      {LoaderKind::dataloader, "dataloader"}, {LoaderKind::dali, "dali"}, {LoaderKind::unused, "unused"}, {LoaderKind::none, "none"}};
  Json out;
  for (const auto& [kind, name] : kKinds) {
    if (kind == figures.kind) out["kind"] = name;
  }
  out["notes"] = figures.notes;
  if (figures.kind != LoaderKind::dataloader) return out;
  out["dataset"] = figures.dataset;
  out["batch_size"] = figures.batch_size;
  out["workers"] = figures.workers;
  out["script_workers"] = figures.script_workers;
  out["prefetch_factor"] = figures.prefetch_factor;
  out["pin_memory"] = figures.pin_memory;
  out["batches_per_step"] = figures.batches;
  out["source"] = figures.source.empty() ? Json() : Json(figures.source);
  if (!card.loader) return out;
  const CardLoader& loader = *card.loader;
  out["cores"] = figures.cores;
  out["batch_ns"] = figures.batch_ns;
  out["waits_share"] = figures.waits_share;
  out["stages"] = Json::array();
  for (const auto& [name, ns] : figures.stages_ns) out["stages"].push_back({{"name", name}, {"ns", ns}});
  out["read"] = {{"bytes", figures.read_bytes}, {"files", figures.files}, {"cached_share", figures.cached_share}};
  out["storage"] = figures.storage.empty() ? Json() : Json{{"name", figures.storage}, {"ns", figures.storage_ns}};
  out["step_without"] = time_range_json(loader.step_without);
  out["now"] = choice_json(loader.now);
  out["choices"] = Json::array();
  for (const LoaderChoice& choice : loader.choices) out["choices"].push_back(choice_json(choice));
  out["enough_workers"] = loader.enough ? Json(*loader.enough) : Json();
  out["cores_needed"] = loader.enough ? Json() : Json(loader.cores_needed);
  return out;
}

// Null: the number of steps of an epoch is not known, or no price was given.
Json epoch_json(const StepTimes& times, const CardTime& card) {
  if (times.epoch_steps <= 0) return {};
  return {{"steps", times.epoch_steps}, {"ns", card.epoch_ns}};
}
Json cost_json(const StepTimes& times, const CardTime& card) {
  if (card.price_per_hour <= 0) return {};
  return {{"price_per_hour", card.price_per_hour},
          {"cards", card.count},
          {"step", cost(card.step.expected_ns, card)},
          {"epoch", times.epoch_steps > 0 ? Json(cost(card.epoch_ns, card)) : Json()}};
}

Json communication_json(const CommunicationPart& part) {
  return {{"purpose", group_purpose_name(part.purpose)},
          {"kind", part.kind},
          {"ranks", part.ranks},
          {"nodes", part.nodes},
          {"calls", part.calls},
          {"bytes", part.bytes},
          {"exposed_ns", part.exposed_ns},
          {"hidden_ns", part.hidden_ns},
          {"bubble_ns", part.waiting_ns}};
}

Json rank_json(const RankStep& rank) {
  return {{"rank", rank.rank},
          {"role", rank.role},
          {"step_ns", rank.step_ns},
          {"compute_ns", rank.compute_ns},
          {"communication", {{"exposed_ns", rank.exposed_ns}, {"hidden_ns", rank.hidden_ns}}},
          {"bubble_ns", rank.waiting_ns},
          {"idle_ns", rank.idle_ns},
          {"by_communication", list_json(rank.communication, communication_json)}};
}

Json critical_json(const CriticalPart& part) { return {{"rank", part.rank}, {"what", part.what}, {"ns", part.ns}}; }

// Null: one process trains alone.
Json job_json(const std::optional<JobStep>& job) {
  if (!job) return {};
  const RankStep& busiest = job->captured[job->busiest];
  return {{"machine", job->machine_id},
          {"ranks", job->ranks},
          {"nodes", job->nodes},
          {"replicas", job->replicas},
          {"step", time_range_json(job->step)},
          {"samples", job->samples},
          {"tokens", job->tokens},
          {"busiest_rank", busiest.rank},
          {"communication", {{"exposed_ns", busiest.exposed_ns}, {"hidden_ns", busiest.hidden_ns}}},
          {"bubble_ns", busiest.waiting_ns},
          {"critical_path", list_json(job->critical, critical_json)},
          {"missing_ranks", job->missing},
          {"notes", job->notes}};
}

// Null: the card's power limit is not known.
Json power_json(const std::optional<CardPower>& power) {
  if (!power) return {};
  return {{"low", power->power.low_w}, {"expected", power->power.expected_w}, {"high", power->power.high_w}};
}
Json energy_json(const EnergyRange& energy) { return {{"low", energy.low_j}, {"expected", energy.expected_j}, {"high", energy.high_j}}; }
Json use_json(const std::optional<CardPower>& power) {
  if (!power) return {};
  return {{"busy_share", power->use.busy_share},
          {"tensor_share", power->use.tensor_share},
          {"plain_share", power->use.plain_share},
          {"memory_share", power->use.memory_share}};
}

Json card_json(const StepTimes& times, const CardTime& card) {
  Json kernels = Json::array();
  for (size_t i = 0; i < card.kernels.size() && i < kMostTimedKernels; ++i) kernels.push_back(kernel_json(card.kernels[i]));
  return {{"gpu", card.gpu_id},
          {"gpu_name", card.gpu_name},
          {"card_measured", card.measured_card},
          {"card_estimated", card.estimated},
          {"step", time_range_json(card.step)},
          {"host_widens", card.host_widens},
          {"step_measured", card.step_measured},
          {"bound", step_bound_name(card.bound)},
          {"epoch", epoch_json(times, card)},
          {"cost", cost_json(times, card)},
          {"gpu_ns", card.gpu_ns},
          {"host_ns", card.host_ns},
          {"samples_per_s", card.samples_per_s},
          {"tokens_per_s", card.tokens_per_s},
          {"model_flops_utilisation", card.model_flops_utilisation},
          {"hardware_flops_utilisation", card.hardware_flops_utilisation},
          {"peak_precision", card.peak_precision},
          {"power_w", power_json(card.power)},
          {"energy_per_step_j", card.power ? energy_json(card.power->energy) : Json()},
          {"power_limited", card.power ? Json(card.power->limited) : Json()},
          {"idle_power_w", card.power ? Json(card.power->idle_power_w) : Json()},
          {"use", use_json(card.power)},
          {"coverage", times.coverage},
          {"unknown_share", card.unknown_share},
          {"unknown_operators", unknown_operators_json(card.unknown_operators)},
          {"job", job_json(card.job)},
          {"ranks", card.job ? list_json(card.job->captured, rank_json) : Json::array()},
          {"loader", times.loader ? loader_json(*times.loader, card) : Json()},
          {"by_phase", parts_json(card.by_phase)},
          {"by_kind", parts_json(card.by_kind)},
          {"by_module", parts_json(card.by_module)},
          {"kernels", std::move(kernels)}};
}

Json run_json(const WholeRun& run, const CardTime& card) {
  const auto part_json = [](const RunPart& part) { return Json{{"name", part.name}, {"ns", part.ns}, {"count", part.count}}; };
  return {{"wall_ns", {{"expected", run.wall.expected_ns}, {"low", run.wall.low_ns}, {"high", run.wall.high_ns}}},
          {"complete", run.complete},
          {"steps", run.steps},
          {"epochs", run.passes},
          {"parts", list_json(run.parts, part_json)},
          {"cost", card.price_per_hour > 0 ? Json(cost(run.wall.expected_ns, card)) : Json()},
          {"energy_j", run.energy ? energy_json(*run.energy) : Json()},
          {"notes", run.notes}};
}

Json scale_json(const ScalePoint& point) {
  return {{"ranks", point.ranks},
          {"nodes", point.nodes},
          {"step", time_range_json(point.step)},
          {"samples_per_s", point.samples_per_s},
          {"communication", {{"exposed_ns", point.exposed_ns}}},
          {"bubble_ns", point.waiting_ns},
          {"efficiency", point.efficiency},
          {"of_more_cards", point.of_more_cards}};
}

}  // namespace

std::string step_times_json(const StepTimes& times) {
  Json out;
  out["schema_version"] = 1;
  out["torch"] = times.torch;
  out["command"] = times.command;
  out["step_observed"] = times.step;
  out["known"] = times.known
                     ? Json{{"gpu", times.known->gpu_id}, {"step_ns", times.known->step_ns}, {"expected_ns", times.known->expected_ns}}
                     : Json();
  out["server_speed"] = times.server_speed;
  out["host_steps"] =
      times.host_steps
          ? Json{{"count", times.host_steps->count}, {"least_ns", times.host_steps->least_ns}, {"median_ns", times.host_steps->middle_ns}}
          : Json();
  out["samples"] = times.samples;
  out["tokens"] = times.tokens;
  out["model_flops"] = times.model_flops;
  out["hardware_flops"] = times.hardware_flops;
  out.update(card_json(times, times.cards.front()));
  out["run"] = times.run ? run_json(*times.run, times.cards.front()) : Json();
  out["scale"] = list_json(times.scale, scale_json);
  out["cards"] = Json::array();
  for (const CardTime& card : times.cards) out["cards"].push_back(card_json(times, card));
  return out.dump(2) + "\n";
}

}  // namespace gpucast
