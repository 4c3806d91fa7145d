// `gpucast gpus --for`: the cards and rented machines for a job, ranked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/machine.h"
#include "gpucast/predict.h"
#include "gpucast/prediction.h"
#include "gpucast/step_time.h"
#include "gpucast/time_range.h"
#include "src/predict/facts.h"
#include "src/search/prices.h"

namespace gpucast::search {

using RankFacts = std::vector<std::shared_ptr<const Facts>>;  // of the captured ranks of a job

struct RentOptions {
  int64_t count = 0;          // of cards; 0: as captured
  std::vector<Offer> offers;  // empty: no prices; then every card of the table is a row
  double epoch_steps = 0;     // 0: from the script's DataLoader
  double cpu_speed = 1;
  std::string constants_json;
  double confidence = kDefaultConfidence;
};

struct RentRow {
  std::string name;  // of the offer; without prices, the card's
  Gpu gpu;
  Machine machine;
  int64_t cards = 1;  // that the job uses
  std::optional<Offer> offer;
  std::string problem;  // not "": not judged, and why
  Verdict verdict = Verdict::none;
  bool same_capability = true;  // false: captured for a card whose libraries choose other kernels and workspaces
  int64_t expected_bytes = 0;   // of a card's memory; of the rank that needs most
  TimeRange step;               // of the job; 0: not known
  StepBound bound = StepBound::gpu;
  double samples_per_s = 0, tokens_per_s = 0;  // 0: not known
  double epoch_ns = 0;                         // 0: not known
  std::vector<std::string> notes;              // of the job, whole sentences
  // 0: not known. All cards of an offer are paid.
  double price_per_hour = 0, epoch_price = 0, million_price = 0;  // million: tokens, or samples if tokens are not known
};

// The rows to judge, without figures: the offers of cards that run today's PyTorch, or all such cards.
std::vector<RentRow> rent_rows(const RentOptions& options);

// Fills the rows and ranks them: those that fit first, by price if there are prices, else by time. `facts_for`: the job's captures for a
// card.
void rank_rent(const RentOptions& options, const std::function<RankFacts(const Gpu&)>& facts_for, std::vector<RentRow>* rows);

}  // namespace gpucast::search
