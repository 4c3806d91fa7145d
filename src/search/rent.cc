#include "src/search/rent.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/step_time.h"
#include "src/predict/analysis.h"

namespace gpucast::search {
namespace {

RentRow row_for(const Gpu& gpu, const Machine& machine, std::string name) {
  RentRow out;
  out.name = std::move(name);
  out.gpu = gpu;
  out.machine = machine;
  return out;
}

void judge_memory(const RankFacts& ranks, const RentOptions& options, RentRow* row) {
  row->verdict = Verdict::fits;
  for (const auto& facts : ranks) {
    const Prediction prediction = judge(facts, row->gpu.id, options.confidence).prediction;
    if (prediction.verdict == Verdict::none) {
      row->problem = prediction.verdict_reason.empty() ? "its memory need is not known" : prediction.verdict_reason;
      return;
    }
    row->verdict = std::max(row->verdict, prediction.verdict);
    row->expected_bytes = std::max(row->expected_bytes, prediction.device.expected_bytes);
    if (prediction.captured_gpu_id.empty()) continue;
    row->same_capability = compute_capability(find_gpu(prediction.captured_gpu_id)) == compute_capability(row->gpu);
  }
}

void add_prices(RentRow* row) {
  if (!row->offer) return;
  row->price_per_hour = price_per_hour(*row->offer, row->cards);
  constexpr double kHourNs = 3600e9, kOneMillion = 1e6;
  const double throughput = row->tokens_per_s > 0 ? row->tokens_per_s : row->samples_per_s;
  row->epoch_price = row->epoch_ns / kHourNs * row->price_per_hour;
  if (throughput > 0) row->million_price = kOneMillion / throughput * 1e9 / kHourNs * row->price_per_hour;
}

void add_time(const RankFacts& ranks, const RentOptions& options, RentRow* row) {
  StepTimeOptions wanted;
  wanted.gpus = {row->gpu};
  wanted.machine = row->machine;
  wanted.cpu_speed = options.cpu_speed;
  wanted.constants_json = options.constants_json;
  wanted.epoch_steps = options.epoch_steps;
  if (options.count > 0 && options.count != ranks.front()->any_card.world_size) wanted.ranks = options.count;
  const StepTimes times = step_times(pointers_to(ranks), wanted);
  const CardTime& card = times.cards.front();
  row->cards = card.count;
  row->step = card.step;
  row->bound = card.bound;
  if (card.job) row->notes = card.job->notes;
  row->samples_per_s = card.samples_per_s;
  row->tokens_per_s = card.tokens_per_s;
  row->epoch_ns = card.epoch_ns;
}

void fill(const RankFacts& ranks, const RentOptions& options, RentRow* row) {
  row->cards = options.count > 0 ? options.count : ranks.front()->any_card.world_size;
  if (row->offer && row->cards > row->offer->most_cards) {
    const int64_t most = row->offer->most_cards;
    row->problem = fmt::format("its price is of at most {} card{} together (most_cards)", most, most == 1 ? "" : "s");
    return;
  }
  if (row->cards > row->machine.links.cards && row->machine.links.network_cards == 0) {
    row->problem = fmt::format("{} has {} cards and no network", row->machine.name, row->machine.links.cards);
    return;
  }
  judge_memory(ranks, options, row);
  if (!row->problem.empty()) return;
  if (fits_now(row->verdict)) add_time(ranks, options, row);
  add_prices(row);
}

}  // namespace

std::vector<RentRow> rent_rows(const RentOptions& options) {
  std::vector<RentRow> out;
  for (const Offer& offer : options.offers) {
    const Gpu& gpu = find_gpu(offer.gpu_id);
    if (!runs_pytorch(gpu)) continue;
    out.push_back(row_for(gpu, offer.machine_id.empty() ? usual_machine(gpu) : find_machine(offer.machine_id), offer.name));
    out.back().offer = offer;
  }
  if (!options.offers.empty()) return out;
  for (const Gpu& gpu : gpu_table())
    if (runs_pytorch(gpu)) out.push_back(row_for(gpu, usual_machine(gpu), gpu.name));
  return out;
}

void rank_rent(const RentOptions& options, const std::function<RankFacts(const Gpu&)>& facts_for, std::vector<RentRow>* rows) {
  for (RentRow& row : *rows) {
    try {
      fill(facts_for(row.gpu), options, &row);
    } catch (const Error& error) {
      row.problem = error.what();
    }
  }
  const auto place = [](const RentRow& row) {
    const bool fits = row.problem.empty() && fits_now(row.verdict);
    const int group = !row.problem.empty() ? 3 : !fits ? 2 : row.step.expected_ns > 0 ? 0 : 1;
    // All rows train the same in a step, so the price of a million is in the order of an epoch's.
    const double price = row.million_price > 0 ? row.million_price : row.price_per_hour;
    return std::tuple(group, price, row.step.expected_ns);
  };
  std::ranges::stable_sort(*rows, {}, place);
}

}  // namespace gpucast::search
