// gpucast.toml (docs/reference/check.md): the jobs that `gpucast check` runs, and their limits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpucast/machine.h"
#include "src/base/toml_file.h"

namespace gpucast::check {

enum class Figure : uint8_t { fits, peak_reserved, device_total, step_time, growth };
inline constexpr size_t kFigures = 5;
const char* figure_name(Figure figure);   // the key: "peak_reserved"
const char* figure_words(Figure figure);  // "peak reserved"

struct Limit {
  Figure figure = Figure::fits;
  std::string text;        // as written: "20 GiB", "120 ms", "5%"
  int64_t most_bytes = 0;  // peak_reserved, device_total
  double most_ns = 0;      // step_time
  TextPlace place;         // in the file
};

struct Job {
  std::string name;
  std::vector<std::string> command;
  std::string capture;                    // a capture file instead of a command; "": none
  std::vector<std::string> gpus;          // as in `gpucast gpus`
  std::string steps;                      // "": the default of `gpucast run`
  int64_t node_gpus = 0, world_size = 0;  // 0: the same
  std::string ranks;                      // "": the same
  std::optional<Machine> machine;         // for step times; unset: the card's usual one
  int64_t steps_total = 0;                // the job's own number, for memory that grows; 0: not given
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
  std::string folder;  // relative to the file's; "": the file's
  std::vector<std::string> what_ifs;
  double timeout_s = 0;  // 0: none
  double confidence = 0;
  std::vector<Limit> limits;  // by figure, at most one each
  TextPlace place;

  const Limit* limit(Figure figure) const;
};

struct Config {
  std::string path;      // as it was found or given
  std::string folder;    // its folder, absolute
  std::string baseline;  // the path of the baseline
  std::vector<Job> jobs;
};

inline constexpr const char* kConfigName = "gpucast.toml";
inline constexpr const char* kBaselineName = "gpucast.baseline.json";

// The nearest gpucast.toml in `folder` or above it. Throws Error if there is none.
std::string find_config(const std::string& folder);

// Throws Error for everything that is wrong, with the line and the column.
Config read_config(const std::string& path);
Config parse_config(std::string_view text, const std::string& path);

}  // namespace gpucast::check
