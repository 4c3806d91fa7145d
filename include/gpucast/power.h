// The power that a card draws, and its energy. All figures are estimates: docs/results/power.md says how far off they were.
#pragma once

namespace gpucast {

struct PowerRange {
  double low_w = 0, expected_w = 0, high_w = 0;  // 9 of 10 measured trainings lie between low and high
};

struct EnergyRange {
  double low_j = 0, expected_j = 0, high_j = 0;  // in addition, the step's time may be off
};

// What a card does over a step. The last three: the time that the step's work would need at the datasheet's rates.
struct CardUse {
  double busy_share = 0;                                       // of the step: some kernel runs
  double tensor_share = 0, plain_share = 0, memory_share = 0;  // products on tensor cores; on plain cores; bytes of device memory
};

struct CardPower {
  CardUse use;
  PowerRange power;         // mean over a step
  EnergyRange energy;       // of a step
  bool limited = false;     // the card would draw more than its power limit allows
  double idle_power_w = 0;  // while a process holds the card, and no kernel runs
};

}  // namespace gpucast
