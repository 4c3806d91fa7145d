// The largest value of an option that fits each card: the answer of `gpucast fit`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpucast {

// One value on one card.
struct FitPoint {
  int64_t value = 0;
  std::string setting;  // "--batch-size 144"
  bool failed = false;  // the script failed for another reason than memory: `problem`; nothing else is known
  std::string problem;
  bool timed_out = false;  // the problem is the time that a run may take
  bool runs = false;       // it runs by the expected estimate of memory outside PyTorch, with cached memory given back where needed
  bool runs_99 = false;    // it runs with the requested probability
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0, expected_bytes = 0, request_bytes = 0;  // the last two: of the whole device
  int64_t need_bytes = 0;                 // the smallest card that runs it, by the expected estimate
  double step_ns = 0, samples_per_s = 0;  // 0: unknown
  std::string run;                        // the line that makes it again
  bool cached = false;                    // it was made before
};

struct FitAnswer {
  std::string gpu_id, gpu_name;
  int64_t capacity_bytes = 0;
  std::vector<FitPoint> points;   // by value
  std::optional<size_t> largest;  // of points: the largest value that runs; unset: none does
  std::optional<size_t> largest_99;
  std::optional<size_t> next;     // the value after `largest`; unset: `largest` is the end of the range
  std::optional<size_t> fastest;  // most samples per second of those that run; unset: no step was timed
};

struct Fit {
  std::string name;  // of what varies
  std::string what;  // "--batch-size 32" as the command has it, or how it is set
  std::vector<std::string> command;
  int64_t low = 0, high = 0;
  double confidence = 0;
  std::vector<FitAnswer> answers;  // in the order of the cards
  std::vector<std::string> notes;  // whole sentences
  int64_t run_count = 0, cached_count = 0;
  double seconds = 0;
};

std::string fit_text(const Fit& fit, bool colour);
std::string fit_json(const Fit& fit);
// The page of `gpucast sweep`: memory and speed against the value. Throws Error if gpucast was built without pages.
std::string fit_html(const Fit& fit);

}  // namespace gpucast
