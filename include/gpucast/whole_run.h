// The time of a whole training: from its start to its end, with evaluations and checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpucast/power.h"
#include "gpucast/time_range.h"

namespace gpucast {

struct RunPart {
  std::string name;  // "training", "evaluation"
  double ns = 0;
  double count = 0;  // of steps, batches, checkpoints, loader starts; 0: it is not counted
};

struct WholeRun {
  TimeRange wall;
  bool complete = true;               // else the script goes on, and the user has not said how far: this is the time up to there
  double steps = 0;                   // optimizer steps
  double passes = 0;                  // over the training data: epochs
  std::vector<RunPart> parts;         // in the order of the report; their sum is wall.expected_ns
  std::optional<EnergyRange> energy;  // of the card; unset: its power is not known
  std::vector<std::string> notes;     // whole sentences
};

// The user's numbers; 0: the script's own.
struct WholeRunWanted {
  int64_t epochs = 0, steps = 0;
};

// `record`: what python/gpucast/whole_run.py wrote, JSON. `step`: the predicted time of a training step, with its batch. Throws Error if
// the record cannot be read, or has no training step, or if an exception ended the script.
WholeRun whole_run(std::string_view record, const TimeRange& step, const WholeRunWanted& wanted);

// Training and evaluation have the power of a step, all other parts have the power of an idle card. Errors of the time are not in the
// range.
EnergyRange run_energy(const WholeRun& run, const CardPower& power);

}  // namespace gpucast
