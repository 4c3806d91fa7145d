#include "src/search/run_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "src/base/command_words.h"
#include "src/base/rank_options.h"

namespace gpucast::search {

run::Job job_of(const RunSpec& spec, const std::string& output) {
  run::Job job;
  job.command = spec.command;
  job.gpu = spec.gpu;
  job.gpus = spec.gpus;
  job.world_size = spec.world_size;
  job.ranks = spec.ranks;
  job.steps = spec.steps;
  job.timeout_s = spec.timeout_s;
  job.environment = spec.environment;
  job.folder = spec.folder;
  job.output = output;
  job.force = true;
  job.enforce_capacity = spec.enforce_capacity;
  job.what_ifs = spec.what_ifs;
  return job;
}

std::string rank_options(const RunSpec& spec) { return gpucast::rank_options(spec.gpus, spec.world_size, spec.ranks); }

namespace {

// "env NAME=value gpucast time --gpu l4 --gpus 2".
std::vector<std::string> words_until_card(const RunSpec& spec, const char* subcommand) {
  std::vector<std::string> words;
  if (!spec.environment.empty()) words.emplace_back("env");
  for (const auto& [name, value] : spec.environment) {
    if (value) {
      words.push_back(fmt::format("{}={}", name, *value));
    } else {
      words.insert(words.end(), {"-u", name});
    }
  }
  words.insert(words.end(), {"gpucast", subcommand, "--gpu", spec.gpu});
  for (std::string& word : rank_words(spec.gpus, spec.world_size, spec.ranks)) words.push_back(std::move(word));
  return words;
}

std::string with_command(std::vector<std::string> words, const RunSpec& spec) {
  words.emplace_back("--");
  words.insert(words.end(), spec.command.begin(), spec.command.end());
  return shell_quote(words);
}

}  // namespace

std::string run_line(const RunSpec& spec) {
  std::vector<std::string> words = words_until_card(spec, "run");
  if (!spec.steps.empty()) words.insert(words.end(), {"--steps", spec.steps});
  if (spec.enforce_capacity) words.emplace_back("--enforce-capacity");
  for (const std::string& what_if : spec.what_ifs) words.insert(words.end(), {"--what-if", what_if});
  return with_command(std::move(words), spec);
}

std::string time_line(const RunSpec& spec) {
  std::vector<std::string> words = words_until_card(spec, "time");
  const bool is_number = !spec.steps.empty() && std::ranges::all_of(spec.steps, [](char c) { return c >= '0' && c <= '9'; });
  if (is_number) words.insert(words.end(), {"--steps", spec.steps});
  return with_command(std::move(words), spec);
}

}  // namespace gpucast::search
