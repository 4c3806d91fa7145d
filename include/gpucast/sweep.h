// One argument of a script with many values: its effect on memory, time and occupancy (DNN-occu, section VI.A).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpucast {

struct SweepRow {
  std::string value;
  std::string verdict;  // as in report-json.md; "failed": `problem` has the reason, and nothing else is known
  std::string problem;
  int64_t expected_bytes = 0;  // of the device's memory
  double step_ns = 0, samples_per_s = 0;
  int64_t samples = 0;   // of each step; 0: unknown
  double occupancy = 0;  // time-weighted
  double mean_of_kernels = 0, of_step = 0, nvml_utilization = 0, sm_active = 0;
  bool timed() const { return step_ns > 0; }
};

struct Sweep {
  std::string name;  // of the argument
  std::string gpu_id, gpu_name;
  int64_t capacity_bytes = 0;
  std::vector<std::string> command;  // with {name} in it
  std::vector<SweepRow> rows;        // in the order given by the user
};

// The first value that reaches 95 % of the highest samples per second among all values that fit: larger ones gain little. Unset: no value
// that fits has a time.
// fits has been timed.
std::optional<size_t> knee_of(const Sweep& sweep);
std::string knee_sentence(const Sweep& sweep);

std::string sweep_json(const Sweep& sweep);
std::string sweep_text(const Sweep& sweep, bool colour);
// A page with the table and its curves that needs no other file. Throws Error if gpucast was built without pages.
std::string sweep_html(const Sweep& sweep);

}  // namespace gpucast
