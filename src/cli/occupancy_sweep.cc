#include "src/cli/occupancy_sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>

#include "gpucast/error.h"
#include "gpucast/step_time.h"
#include "src/base/comma_words.h"
#include "src/base/command_words.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/predict/facts.h"
#include "src/run/batch_results.h"
#include "src/run/child_process.h"
#include "src/run/session_folder.h"

namespace gpucast::cli {
namespace {

constexpr const char* kExample = "such as --sweep batch=16,32,64 -- python train.py --batch {batch}";

struct Values {
  std::string name;
  std::vector<std::string> values;
};

Values read_argument(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) throw Error("--sweep is a name and its values", text, kExample);
  Values out{text.substr(0, equals), {}};
  for (const std::string& value : comma_words(text.substr(equals + 1))) {
    if (value.empty()) throw Error("--sweep has a value that is empty", text, kExample);
    if (std::find(out.values.begin(), out.values.end(), value) == out.values.end()) out.values.push_back(value);
  }
  return out;
}

std::vector<std::string> with_value(const std::vector<std::string>& words, const std::string& place, const std::string& value) {
  std::vector<std::string> out = words;
  for (std::string& word : out)
    for (size_t at = word.find(place); at != std::string::npos; at = word.find(place, at + value.size()))
      word.replace(at, place.size(), value);
  return out;
}

// Why a value failed. If the script itself failed, its last printed line is added.
std::string problem_of(const Json& result) {
  const Json& error = result["error"];
  std::string message = error.value("message", "");
  if (error.value("code", "") != "script_failed") return message;
  const std::string line = run::last_line(result.value("printed", ""));
  return line.empty() ? message : fmt::format("{}: {}", message, line);
}

SweepRow row_of(const std::string& value, const std::string& capture, const Json& result, const JobOccupancyOptions& options) {
  SweepRow out;
  out.value = value;
  out.verdict = result.value("status", "failed");
  out.problem = problem_of(result);
  out.expected_bytes = result["report"]["device"].value("expected_bytes", 0);
  if (access(capture.c_str(), R_OK) != 0) return out;
  try {
    const std::shared_ptr<const Facts> facts = follow(read_trace(capture));
    const CardOccupancy card = std::move(job_occupancy(*facts, options).cards.front());
    StepTimeOptions times;
    times.gpus = options.gpus;
    times.constants_json = options.constants_json;
    times.cpu_speed = options.cpu_speed;
    const StepTimes time = step_times(*facts, times);
    out.step_ns = time.cards.front().step.expected_ns;
    out.samples = time.samples;
    out.samples_per_s = time.cards.front().samples_per_s;
    out.occupancy = card.occupancy.time_weighted;
    out.mean_of_kernels = card.occupancy.mean_of_kernels;
    out.of_step = card.of_step;
    out.nvml_utilization = card.nvml_utilization;
    out.sm_active = card.sm_active;
  } catch (const Error& error) {
    if (out.problem.empty()) out.problem = error.what();
  }
  return out;
}

}  // namespace

std::optional<Sweep> run_sweep(const std::string& argument, const StepSource& source, JobOccupancyOptions options) {
  const Values wanted = read_argument(argument);
  const std::string place = "{" + wanted.name + "}";
  if (std::none_of(source.what.begin(), source.what.end(), [&](const std::string& word) { return word.find(place) != std::string::npos; }))
    throw Error(fmt::format("no word of the command has {} in it", place), argument, kExample);
  const Gpu& gpu = one_card(source.gpus, "--sweep is for one card");
  options.gpus = {gpu};
  Sweep out;
  out.name = wanted.name;
  out.gpu_id = gpu.id;
  out.gpu_name = gpu.name;
  out.capacity_bytes = gpu.total_memory_bytes;
  out.command = source.what;
  const run::SessionFolder folder;
  const auto capture_of = [&](size_t i) { return fmt::format("{}/{}.gpucast", folder.path, i); };
  const std::string jobs = folder.path + "/jobs.jsonl", results = folder.path + "/results.jsonl";
  {
    std::ofstream lines(jobs);
    for (size_t i = 0; i < wanted.values.size(); ++i) {
      Json job = {{"name", wanted.values[i]}, {"gpu", gpu.id}, {"steps", source.steps}, {"output", capture_of(i)}};
      job["command"] = command_json(with_value(source.what, place, wanted.values[i]));
      lines << job.dump() << "\n";
    }
    if (!lines.flush()) throw Error("cannot write to the temporary folder", jobs, "is the disk full?");
  }
  run::Program program;
  program.words = {"gpucast", "batch", jobs, "-o", results};
  program.environment = run::own_environment();
  program.folder = ".";
  program.errors = STDERR_FILENO;
  if (run::run_self(program) == kExitInterrupted) return std::nullopt;
  std::map<std::string, Json> by_name;
  const std::string text = read_file(results);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    Json line = Json::parse(std::string_view(text).substr(begin, end - begin));
    const std::string name = line.value("name", "");
    by_name[name] = std::move(line);
    begin = end + 1;
  }
  for (size_t i = 0; i < wanted.values.size(); ++i)
    out.rows.push_back(row_of(wanted.values[i], capture_of(i), by_name[wanted.values[i]], options));
  return out;
}

}  // namespace gpucast::cli
