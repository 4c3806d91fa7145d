// All facts of one capture that do not depend on a card. follow() derives them once; judge() uses them for any number of cards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpucast/history.h"
#include "gpucast/prediction.h"
#include "gpucast/trace.h"
#include "src/attribution/attribution.h"
#include "src/base/alloc_conf.h"
#include "src/ledger/beside.h"
#include "src/lifetime/lifetime.h"
#include "src/lifetime/start_state.h"
#include "src/predict/least_capacity.h"
#include "src/work/step_operations.h"

namespace gpucast {

struct Facts {
  Trace trace;
  AllocConf conf;           // the allocator's settings in that run
  StartState start;         // of a memory snapshot whose history begins after the run's start
  Lifetimes lifetimes;      // its peaks are those after the attempts that failed
  Comparison comparison;    // with PyTorch's own records
  Attribution attribution;  // of lifetimes.blocks, one by one
  History history;
  LeastCapacity least;  // empty if attempts failed, because they would fail again
  // The event after which the script trains with less memory, after attempts ran out of memory; unset: none failed, or no step followed.
  std::optional<uint32_t> begin_after_failures;
  JobFacts job;                        // for the ledger
  std::optional<StepOperations> step;  // the observed step; unset: none was, or the file is damaged. See observed_step()
  Prediction any_card;                 // the part of a prediction that is the same for every card

  // The run ended because an allocation failed.
  bool cut_short() const { return any_card.oom && any_card.oom->ended_run; }
};

// The same trace gives the same facts. Throws Error for an internal contradiction.
std::shared_ptr<const Facts> follow(Trace trace);

// For functions that look at several ranks of a job and keep none.
std::vector<const Facts*> pointers_to(const std::vector<std::shared_ptr<const Facts>>& ranks);

// Throws Error if `facts` have no observed step, with the reason and what to do.
const StepOperations& observed_step(const Facts& facts);

}  // namespace gpucast
