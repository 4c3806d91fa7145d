#include "src/check/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/predict.h"
#include "src/base/parse_size.h"
#include "src/breakdown/fail_above.h"
#include "src/explain/what_if.h"
#include "src/run/batch_job.h"
#include "src/run/own_ranks.h"
#include "src/run/run_session.h"

namespace gpucast::check {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFigureNames[] = {"fits", "peak_reserved", "device_total", "step_time", "growth"};
constexpr const char* kFigureWords[] = {"fits", "peak reserved", "device total", "step time", "growth"};
static_assert(std::size(kFigureNames) == kFigures && std::size(kFigureWords) == kFigures);

constexpr double kMostStepNs = 1e15;  // 11 days

// "120 ms", "1.5s".
double parse_step_time(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  const double scale = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : unit == "us" ? 1e3 : 0;
  if (error != std::errc() || scale == 0 || !(number > 0) || !(number * scale <= kMostStepNs))
    throw Error(fmt::format("'{}' is no time of a step", text), "", "write a number with s, ms or us: step_time = \"120 ms\"");
  return number * scale;
}

// Reads tables whose keys each have one type. Every error has the place of its value.
class ConfigReader {
 public:
  explicit ConfigReader(std::string path) : path_(std::move(path)) {}

  [[noreturn]] void fail(const TextPlace& at, const std::string& what, const std::string& to_do) const {
    throw Error(what, file_place(path_, at), to_do);
  }

  void check_keys(const TomlValue& table, const char* of, const std::vector<std::string>& known) const {
    for (const TomlValue& entry : table.values) {
      if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
      const auto near = did_you_mean(entry.key, known);
      fail(entry.key_place, fmt::format("{} has no key '{}'", of, entry.key),
           near ? fmt::format("did you mean '{}'?", *near) : fmt::format("its keys are {}", fmt::join(known, ", ")));
    }
  }

  void require_kind(const TomlValue& value, TomlKind kind, const char* example) const {
    if (value.kind != kind)
      fail(value.place, fmt::format("'{}' is {}, and must be {}", value.key, toml_kind_name(value.kind), toml_kind_name(kind)),
           fmt::format("such as {}", example));
  }

  std::string text(const TomlValue& value, const char* example) const {
    require_kind(value, TomlKind::text, example);
    if (value.text.empty() || value.text.find('\0') != std::string::npos)
      fail(value.place, fmt::format("'{}' is {}", value.key, value.text.empty() ? "empty" : "text with a zero byte"),
           fmt::format("such as {}", example));
    return value.text;
  }

  // One text, or a list of texts that is not empty.
  std::vector<std::string> texts(const TomlValue& value, const char* example) const {
    if (value.kind == TomlKind::text) return {text(value, example)};
    if (value.kind != TomlKind::array || value.values.empty())
      fail(value.place, fmt::format("'{}' must be text, or a list of texts", value.key), fmt::format("such as {}", example));
    std::vector<std::string> out;
    for (const TomlValue& entry : value.values) {
      if (entry.kind != TomlKind::text)
        fail(entry.place, fmt::format("an entry of '{}' is {}, and must be text", value.key, toml_kind_name(entry.kind)),
             fmt::format("such as {}", example));
      out.push_back(entry.text);
    }
    return out;
  }

  double number(const TomlValue& value, double least, double most, const char* example) const {
    const bool good = (value.kind == TomlKind::integer || value.kind == TomlKind::number) && value.number >= least && value.number <= most;
    if (!good) fail(value.place, fmt::format("'{}' must be a number from {:g} to {:g}", value.key, least, most), example);
    return value.number;
  }

  // Gives an Error of `read` this place.
  template <class Read>
  auto with_place(const TextPlace& at, Read read) const {
    try {
      return read();
    } catch (const Error& error) {
      fail(at, error.what(), error.hint);
    }
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void set_limit(Limit limit, Job* job) {
  std::erase_if(job->limits, [&](const Limit& other) { return other.figure == limit.figure; });
  job->limits.push_back(std::move(limit));
  std::sort(job->limits.begin(), job->limits.end(), [](const Limit& a, const Limit& b) { return a.figure < b.figure; });
}

void read_limits(const ConfigReader& read, const TomlValue& table, Job* job) {
  read.require_kind(table, TomlKind::table, R"(limits = { peak_reserved = "20 GiB" })");
  read.check_keys(table, "'limits'", {std::begin(kFigureNames), std::end(kFigureNames)});
  for (const TomlValue& entry : table.values) {
    Limit limit;
    limit.place = entry.key_place;
    limit.figure = static_cast<Figure>(std::find(std::begin(kFigureNames), std::end(kFigureNames), entry.key) - std::begin(kFigureNames));
    if (limit.figure == Figure::fits) {
      read.require_kind(entry, TomlKind::boolean, "fits = true");
      if (entry.boolean) {
        set_limit(std::move(limit), job);
      } else {
        std::erase_if(job->limits, [](const Limit& other) { return other.figure == Figure::fits; });
      }
      continue;
    }
    const bool time = limit.figure == Figure::step_time, growth = limit.figure == Figure::growth;
    limit.text = read.text(entry, time ? "step_time = \"120 ms\"" : growth ? "growth = \"5%\"" : "peak_reserved = \"20 GiB\"");
    read.with_place(entry.place, [&] {
      if (time)
        limit.most_ns = parse_step_time(limit.text);
      else if (growth)
        parse_fail_above(limit.text, 0, "growth =");
      else
        limit.most_bytes = parse_size(limit.text, entry.key + " =", "20 GiB");
    });
    set_limit(std::move(limit), job);
  }
}

std::vector<std::string> read_command(const ConfigReader& read, const TomlValue& value) {
  constexpr const char* kExample = R"(command = "python train.py --config ci.yaml")";
  if (value.kind != TomlKind::text) return read.texts(value, kExample);
  const auto words = run::split_command(read.text(value, kExample));
  if (!words) read.fail(value.place, "'command' leaves a quote open", "close it, or write a list of words");
  if (words->empty()) read.fail(value.place, "'command' is empty", fmt::format("such as {}", kExample));
  return *words;
}

std::vector<std::string> read_gpus(const ConfigReader& read, const TomlValue& value) {
  std::vector<std::string> out;
  const std::vector<std::string> names = read.texts(value, R"(gpu = ["rtx4090", "l4"])");
  for (size_t i = 0; i < names.size(); ++i) {
    const TextPlace& at = value.kind == TomlKind::array ? value.values[i].place : value.place;
    read.with_place(at, [&] { out.push_back(find_gpu(names[i]).id); });
    if (std::count(out.begin(), out.end(), out.back()) > 1)
      read.fail(at, fmt::format("the card '{}' is named twice", out.back()), "leave one out");
  }
  return out;
}

std::string read_steps(const ConfigReader& read, const TomlValue& value) {
  if (value.kind == TomlKind::integer) return fmt::format("{:.0f}", read.number(value, 1, 1e6, "such as steps = 3"));
  std::string text = read.text(value, "steps = 3, steps = \"auto\"");
  read.with_place(value.place, [&] { (void)run::parse_steps(text); });
  return text;
}

int64_t read_count(const ConfigReader& read, const TomlValue& value) {
  constexpr double kMost = 1 << 20;
  const double count = read.number(value, 1, kMost, "such as 8");
  if (value.kind != TomlKind::integer) read.fail(value.place, fmt::format("'{}' must be a whole number", value.key), "such as 8");
  return static_cast<int64_t>(count);
}

// "0,8", 0, or [0, 8].
std::string read_ranks(const ConfigReader& read, const TomlValue& value) {
  constexpr const char* kExample = "such as ranks = [0, 8]";
  if (value.kind == TomlKind::text) return read.text(value, kExample);
  std::vector<int64_t> ranks;
  const std::vector<TomlValue> single = {value};
  for (const TomlValue& entry : value.kind == TomlKind::array ? value.values : single) {
    if (entry.kind != TomlKind::integer) read.fail(entry.place, "'ranks' must be a list of whole numbers", kExample);
    ranks.push_back(entry.integer);
  }
  if (ranks.empty()) read.fail(value.place, "'ranks' is empty", kExample);
  return fmt::format("{}", fmt::join(ranks, ","));
}

// A file's path is relative to the configuration's.
Machine read_machine_of(const ConfigReader& read, const TomlValue& value) {
  std::string name = read.text(value, "machine = \"dgx-a100\"");
  if (name.find('/') != std::string::npos || name.ends_with(".json")) name = (fs::path(read.path()).parent_path() / name).string();
  return read.with_place(value.place, [&] { return read_machine(name); });
}

void read_environment(const ConfigReader& read, const TomlValue& table, Job* job) {
  read.require_kind(table, TomlKind::table, R"(environment = { OMP_NUM_THREADS = "1" })");
  for (const TomlValue& entry : table.values) {
    if (entry.key.empty() || entry.key.find('=') != std::string::npos || entry.kind != TomlKind::text)
      read.fail(entry.key_place, fmt::format("'environment' holds names and texts, and '{}' is none", entry.key),
                R"(such as environment = { OMP_NUM_THREADS = "1" })");
    std::erase_if(job->environment, [&](const auto& other) { return other.first == entry.key; });
    job->environment.emplace_back(entry.key, entry.text);
  }
}

std::vector<std::string> read_what_ifs(const ConfigReader& read, const TomlValue& value) {
  std::vector<std::string> out = read.texts(value, R"(what_if = ["bf16"])");
  for (size_t i = 0; i < out.size(); ++i)
    read.with_place(value.kind == TomlKind::array ? value.values[i].place : value.place, [&] { check_what_if(out[i]); });
  return out;
}

// The keys that [defaults] may have, too.
void read_shared_key(const ConfigReader& read, const TomlValue& value, Job* job) {
  const std::string& key = value.key;
  if (key == "gpu") job->gpus = read_gpus(read, value);
  if (key == "steps_total") job->steps_total = static_cast<int64_t>(read.number(value, 1, 1e12, "such as steps_total = 20000"));
  if (key == "steps") job->steps = read_steps(read, value);
  if (key == "gpus") job->node_gpus = read_count(read, value);
  if (key == "world_size") job->world_size = read_count(read, value);
  if (key == "ranks") job->ranks = read_ranks(read, value);
  if (key == "machine") job->machine = read_machine_of(read, value);
  if (key == "environment") read_environment(read, value, job);
  if (key == "folder") job->folder = read.text(value, "folder = \"examples\"");
  if (key == "what_if") job->what_ifs = read_what_ifs(read, value);
  if (key == "timeout_s") job->timeout_s = read.number(value, 0.001, 1e7, "such as timeout_s = 600");
  if (key == "confidence") job->confidence = read.number(value, kLeastConfidence, kMostConfidence, "such as confidence = 0.99");
  if (key == "limits") read_limits(read, value, job);
}

const std::vector<std::string>& shared_keys() {
  static const std::vector<std::string> keys{"gpu",         "gpus",   "world_size", "ranks",     "machine",    "steps", "steps_total",
                                             "environment", "folder", "what_if",    "timeout_s", "confidence", "limits"};
  return keys;
}

// Ranks and the machine are of a command, and fit together as `gpucast run` and `gpucast time` want them.
void check_ranks(const ConfigReader& read, const TomlValue& table, const Job& job) {
  const auto place_of = [&](const char* key) {
    const TomlValue* own = table.find(key);
    return own == nullptr ? table.place : own->place;
  };
  for (const char* key : {"gpus", "world_size", "ranks"})
    if (!job.capture.empty() && table.find(key) != nullptr)
      read.fail(place_of(key), fmt::format("'{}' says how a command runs, and job '{}' has a capture", key, job.name),
                "name the command, or leave this out");
  if (job.command.empty()) return;
  if (job.world_size == 0 && !job.ranks.empty())
    read.fail(place_of("ranks"), "'ranks' says which ranks of a larger job run", "say how many it has: world_size = N");
  if (job.world_size == 0) return;
  read.with_place(place_of("world_size"), [&] { run::check_starts_no_ranks("'world_size'", job.command); });
  if (!job.ranks.empty()) read.with_place(place_of("ranks"), [&] { run::parse_ranks("'ranks'", job.ranks, job.world_size); });
}

// The machine's card is the default of `gpu`.
void check_machine(const ConfigReader& read, const TomlValue& table, Job* job) {
  if (!job->machine) return;
  if (job->gpus.empty() && job->machine->gpu_ids.size() == 1) job->gpus = job->machine->gpu_ids;
  const TomlValue* own = table.find("machine");
  for (const std::string& gpu : job->gpus)
    read.with_place(own == nullptr ? table.place : own->place, [&] { check_machine_has(*job->machine, find_gpu(gpu)); });
}

Job read_job(const ConfigReader& read, const TomlValue& table, Job job) {
  job.place = table.place;
  for (Limit& limit : job.limits)
    if (limit.place.line == 0) limit.place = table.place;  // `fits` of the default
  std::vector<std::string> known{"name", "command", "capture"};
  known.insert(known.end(), shared_keys().begin(), shared_keys().end());
  read.check_keys(table, "a job", known);
  for (const TomlValue& value : table.values) {
    if (value.key == "name") job.name = read.text(value, "name = \"train\"");
    if (value.key == "command") job.command = read_command(read, value);
    if (value.key == "capture") job.capture = read.text(value, "capture = \"train.gpucast\"");
    read_shared_key(read, value, &job);
  }
  if (job.name.empty()) read.fail(table.place, "this job has no name", "add one: name = \"train\"");
  if (job.command.empty() == job.capture.empty())
    read.fail(table.place, fmt::format("job '{}' has {}", job.name, job.command.empty() ? "no command" : "a command and a capture"),
              R"(name what to run: command = "python train.py")");
  check_ranks(read, table, job);
  check_machine(read, table, &job);
  if (job.gpus.empty())
    read.fail(table.place, fmt::format("job '{}' names no card", job.name), R"(add one: gpu = "rtx4090". `gpucast gpus` lists them)");
  return job;
}

void check_names(const ConfigReader& read, const std::vector<Job>& jobs) {
  std::map<std::string, TextPlace> places;
  for (const Job& job : jobs) {
    const auto [first, fresh] = places.emplace(job.name, job.place);
    if (!fresh)
      read.fail(job.place, fmt::format("two jobs have the name '{}'", job.name),
                fmt::format("give one another name; the other is in line {}", first->second.line));
  }
}

Config config_of(const TomlValue& file, const std::string& path) {
  const ConfigReader read(path);
  read.check_keys(file, "the file", {"job", "defaults", "baseline"});
  Config out;
  out.path = path;
  out.folder = fs::absolute(path).lexically_normal().parent_path().string();
  const TomlValue* baseline = file.find("baseline");
  const fs::path name = baseline == nullptr ? kBaselineName : read.text(*baseline, "baseline = \"gpucast.baseline.json\"");
  out.baseline = (fs::path(path).parent_path() / name).string();
  Job defaults;
  defaults.confidence = kDefaultConfidence;
  defaults.limits.push_back({});
  if (const TomlValue* table = file.find("defaults")) {
    read.require_kind(*table, TomlKind::table, "[defaults]");
    read.check_keys(*table, "[defaults]", shared_keys());
    for (const TomlValue& value : table->values) read_shared_key(read, value, &defaults);
  }
  const TomlValue* jobs = file.find("job");
  if (jobs == nullptr || jobs->kind != TomlKind::array || jobs->values.empty())
    read.fail(jobs == nullptr ? file.place : jobs->place, "the file has no jobs",
              "add one: [[job]], name = \"train\", command = \"python train.py\", gpu = \"rtx4090\"");
  for (const TomlValue& table : jobs->values) {
    if (table.kind != TomlKind::table) read.fail(table.place, "a job must be a table", "begin each with [[job]]");
    out.jobs.push_back(read_job(read, table, defaults));
  }
  check_names(read, out.jobs);
  return out;
}

}  // namespace

const char* figure_name(Figure figure) { return kFigureNames[static_cast<size_t>(figure)]; }
const char* figure_words(Figure figure) { return kFigureWords[static_cast<size_t>(figure)]; }

const Limit* Job::limit(Figure figure) const {
  const auto found = std::find_if(limits.begin(), limits.end(), [&](const Limit& limit) { return limit.figure == figure; });
  return found == limits.end() ? nullptr : &*found;
}

std::string find_config(const std::string& folder) {
  const fs::path start = fs::absolute(folder).lexically_normal();
  for (fs::path above = start;; above = above.parent_path()) {
    std::error_code error;
    if (fs::is_regular_file(above / kConfigName, error)) return fs::path(above / kConfigName).lexically_proximate(start).string();
    if (above == above.parent_path()) break;
  }
  throw Error(fmt::format("there is no {} here or in a folder above", kConfigName), start.string(),
              "write one (docs/reference/check.md), or name it: --config FILE");
}

Config read_config(const std::string& path) { return config_of(read_toml(path), path); }
Config parse_config(std::string_view text, const std::string& path) { return config_of(parse_toml(text, path), path); }

}  // namespace gpucast::check
