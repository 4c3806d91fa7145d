// `gpucast plan`: which number of cards, and which split of the model over them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/prediction.h"
#include "gpucast/time_range.h"
#include "src/search/plan_space.h"

namespace gpucast::search {

// What is known of one choice.
struct PlanFigures {
  bool failed = false;              // `problem` says why, and nothing else is known
  Verdict verdict = Verdict::none;  // does_not_fit: there may be no times
  std::string problem;
  int64_t peak_reserved_bytes = 0, expected_bytes = 0;  // of the rank that needs most; 0: unknown
  TimeRange step;                                       // of the job
  int64_t samples = 0, tokens = 0;                      // of the job, in a step; 0: unknown
  int64_t replicas = 1, nodes = 1;
  double bubble_share = 0, exposed_share = 0;  // of the step of the rank that waits least for others
  std::vector<std::string> notes;              // of the job, whole sentences
  std::vector<std::string> runs;               // lines that the user can paste
};

struct PlanRequest {
  PlanChoice choice;
  std::vector<int64_t> also;  // the same split on these numbers of cards, by more replicas of the captured job
};

struct PlanAnswer {
  PlanFigures figures;
  std::vector<std::optional<PlanFigures>> also;  // as requested; unset: more replicas cannot be derived from this capture
  // What one replica and one rank do in a step. Equal on different numbers of cards: only the data is divided over them.
  int64_t samples_of_replica = 0, tokens_of_replica = 0;
  double flops_of_rank = 0;
};

// Captures and times choices; the search's tests have one with figures of their own.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  virtual std::vector<PlanAnswer> ask(const std::vector<PlanRequest>& requests) = 0;
};

struct Plan {
  PlanChoice choice;
  PlanFigures figures;
  int64_t captured_gpus = 0;  // other than the choice's: derived from a capture on this many cards; 0: not run, by memory
  double throughput = 0;      // tokens a second, or samples if tokens are not known; 0: neither is
  double price_per_hour = 0;  // of all nodes; 0: unknown
  double ns = 0, cost = 0;    // of all tokens; of a million tokens (or samples) if the goal names none; 0: unknown
  bool in_time = true;        // before the deadline
};

struct PlanGoal {
  double tokens = 0;                                   // 0: not named
  double deadline_ns = 0;                              // 0: none
  std::function<double(int64_t gpus)> price_per_hour;  // empty: no prices
};

// The number of cards on which the best plan is better than on fewer.
struct PlanScale {
  int64_t gpus = 1;
  size_t plan = 0;           // the fastest on this many, in PlanSearch::plans
  double of_more_cards = 1;  // what each card brings that the row before does not have, relative to a card of the first row
};

struct PlanSearch {
  std::vector<Plan> plans;  // those that fit first, the best one first; then those that do not fit, then those that failed
  std::vector<PlanScale> scale;
  bool rescaled = false;   // some plans are derived from captures on fewer cards
  bool sharded = false;    // ... and hold at most the memory of these, because ranks share state with all replicas
  bool by_tokens = false;  // throughput counts tokens
  int64_t runs = 0;        // asked for
};

// Each split is captured on the fewest cards and derived for more, if the script's work for a replica does not depend on the number of
// cards; the best are then captured on their own number. A micro batch is tried only where the smaller one fits.
// Throws Error: the script fails with every plan.
PlanSearch find_plans(const PlanSpace& space, const std::vector<PlanChoice>& choices, const PlanGoal& goal, PlanSource* source);

std::string plan_words(const PlanSpace& space, const PlanChoice& choice);  // "64 cards, tp 8, pp 1"

}  // namespace gpucast::search
