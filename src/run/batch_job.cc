#include "src/run/batch_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "gpucast/predict.h"
#include "src/base/command_words.h"
#include "src/base/json.h"
#include "src/base/to_number.h"
#include "src/explain/what_if.h"
#include "src/run/run_session.h"

namespace gpucast::run {
namespace {

const char* const kKeys[] = {
    "name",  "command",          "gpu",     "steps", "timeout_s", "confidence", "environment", "folder", "output",
    "force", "enforce_capacity", "what_if", "log",   "cudnn",     "gpus",       "world_size",  "ranks",  "measure_host"};

// Every key has values of one type; a value of another type is a problem that names the key. null counts as not given.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void text(const char* key, std::string* value) {
    if (const Json* given = find(key)) {
      if (!given->is_text() || has_nul(*given)) throw Error(fmt::format("\"{}\" must be text", key));
      *value = given->get<std::string>();
    }
  }
  void flag(const char* key, bool* value) {
    if (const Json* given = find(key)) {
      if (!given->is_boolean()) throw Error(fmt::format("\"{}\" must be true or false", key));
      *value = given->get<bool>();
    }
  }
  void count(const char* key, int64_t* value) {
    if (const Json* given = find(key)) {
      if (!given->is_integer() || given->get<int64_t>() < 1) throw Error(fmt::format("\"{}\" must be a whole number, 1 or more", key));
      *value = given->get<int64_t>();
    }
  }
  void steps(const char* key, std::string* value) {
    const Json* given = find(key);
    if (given != nullptr && given->is_text()) {
      text(key, value);
      (void)parse_steps(*value);
    } else if (given != nullptr) {
      int64_t number = 0;
      count(key, &number);
      *value = std::to_string(number);
    }
  }
  void seconds(const char* key, double* value) {
    if (const Json* given = find(key)) {
      if (!given->is_number() || !(given->get<double>() > 0)) throw Error(fmt::format("\"{}\" must be a number of seconds above 0", key));
      *value = given->get<double>();
    }
  }
  void probability(const char* key, double* value) {
    if (const Json* given = find(key)) {
      *value = given->get<double>();
      if (!given->is_number() || *value < kLeastConfidence || *value > kMostConfidence)
        throw Error(fmt::format("\"{}\" must be a probability from {:g} to {:g}", key, kLeastConfidence, kMostConfidence));
    }
  }
  void texts(const char* key, std::vector<std::string>* value) {
    if (const Json* given = find(key)) *value = texts_of(key, *given);
  }
  void command(const char* key, std::vector<std::string>* value) {
    const Json* given = find(key);
    if (given && given->is_text()) {
      auto words = split_command(given->get<std::string>());
      if (!words) throw Error(fmt::format("\"{}\" leaves a quote open", key));
      *value = std::move(*words);
    } else if (given) {
      *value = texts_of(key, *given);
    }
    if (value->empty() || value->front().empty()) {
      throw Error(fmt::format("\"{}\" is missing", key), "", R"(name what to run: {"command": ["python", "train.py"]})");
    }
  }
  void environment(const char* key, Job* job) {
    const Json* given = find(key);
    if (!given) return;
    const auto fail = [&] { throw Error(fmt::format("\"{}\" must be an object of names and texts (null removes a variable)", key)); };
    if (!given->is_object()) fail();
    for (size_t i = 0; i < given->size(); ++i) {
      const std::string& name = given->keys()[i];
      const Json& value = given->at(i);
      if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) fail();
      if (!value.is_null() && (!value.is_text() || has_nul(value))) fail();
      job->environment.emplace_back(name, value.is_null() ? std::nullopt : std::optional(value.get<std::string>()));
    }
  }

 private:
  static bool has_nul(const Json& text) { return text.get<std::string>().find('\0') != std::string::npos; }
  const Json* find(const char* key) const {
    const Json* given = object_.find(key);
    return given == nullptr || given->is_null() ? nullptr : given;
  }
  static std::vector<std::string> texts_of(const char* key, const Json& list) {
    std::vector<std::string> all;
    bool good = list.is_array();
    for (size_t i = 0; good && i < list.size(); ++i) {
      std::optional<std::string> word = word_from_json(list.at(i));
      good = word && word->find('\0') == std::string::npos;
      if (good) all.push_back(std::move(*word));
    }
    if (!good) throw Error(fmt::format("\"{}\" must be a list of texts", key));
    return all;
  }

  const Json& object_;
};

void check_keys(const Json& object) {
  std::vector<std::string> known(std::begin(kKeys), std::end(kKeys));
  for (const std::string& key : object.keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto near = did_you_mean(key, known);
    throw Error(fmt::format("there is no \"{}\" in a job", key), "",
                near ? fmt::format("did you mean \"{}\"?", *near) : fmt::format("a job may have: {}", fmt::join(known, ", ")));
  }
}

void read_job(const Json& object, Job* job) {
  Reader reader(object);
  reader.text("name", &job->name);  // first: it names the job's own problems
  if (job->name.empty()) throw Error("\"name\" is empty");
  check_keys(object);
  reader.command("command", &job->command);
  reader.text("gpu", &job->gpu);
  reader.text("cudnn", &job->cudnn);
  reader.count("gpus", &job->gpus);
  reader.count("world_size", &job->world_size);
  reader.text("ranks", &job->ranks);
  reader.steps("steps", &job->steps);
  reader.seconds("timeout_s", &job->timeout_s);
  reader.probability("confidence", &job->confidence);
  reader.environment("environment", job);
  reader.text("folder", &job->folder);
  reader.text("output", &job->output);
  reader.text("log", &job->log);
  reader.flag("force", &job->force);
  reader.flag("enforce_capacity", &job->enforce_capacity);
  reader.flag("measure_host", &job->measure_host);
  reader.texts("what_if", &job->what_ifs);
  for (const std::string& what_if : job->what_ifs) check_what_if(what_if);
  if (job->folder.empty()) job->folder = ".";
}

}  // namespace

ParsedJob parse_job(const std::string& line, int64_t line_number, const Job& defaults) {
  ParsedJob parsed{defaults, std::nullopt};
  parsed.job.name = fmt::format("line {}", line_number);
  const std::string where = fmt::format("line {} of the jobs", line_number);
  const auto problem = [&](const char* code, const std::string& message, const std::string& to_do) {
    parsed.problem = JobProblem{code, message, where, to_do};
  };
  const Json object = Json::parse(line);
  if (!object.is_object()) {
    problem("bad_job", "this is no JSON object", R"(one object a line: {"name": "a", "command": ["python", "train.py"]})");
    return parsed;
  }
  try {
    read_job(object, &parsed.job);
  } catch (const Error& error) {
    problem("bad_job", error.what(), error.hint);
    return parsed;
  }
  try {
    if (!parsed.job.gpu.empty()) find_gpu(parsed.job.gpu);
  } catch (const Error& error) {
    problem("unknown_gpu", error.what(), error.hint);
  }
  return parsed;
}

std::string job_line(const Job& job) {
  Json line;
  const auto add = [&](const char* key, const auto& value, bool given) {
    if (given) line[key] = value;
  };
  add("name", job.name, true);
  add("command", command_json(job.command), true);
  add("gpu", job.gpu, !job.gpu.empty());
  add("cudnn", job.cudnn, !job.cudnn.empty());
  add("gpus", job.gpus, job.gpus > 0);
  add("world_size", job.world_size, job.world_size > 0);
  add("ranks", job.ranks, !job.ranks.empty());
  // A number is an integer in JSON.
  if (const auto steps = to_number<int64_t>(job.steps)) line["steps"] = *steps;
  add("steps", job.steps, !job.steps.empty() && !to_number<int64_t>(job.steps));
  add("timeout_s", job.timeout_s, job.timeout_s > 0);
  add("confidence", job.confidence, job.confidence > 0);
  for (const auto& [name, value] : job.environment) line["environment"][name] = value ? Json(*value) : Json(nullptr);
  add("folder", job.folder, true);
  add("output", job.output, !job.output.empty());
  add("log", job.log, !job.log.empty());
  add("force", true, job.force);
  add("enforce_capacity", true, job.enforce_capacity);
  add("measure_host", true, job.measure_host);
  add("what_if", job.what_ifs, !job.what_ifs.empty());
  return line.dump() + "\n";
}

std::optional<std::vector<std::string>> split_command(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
      continue;
    }
    in_word = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      const char next = text[++i];
      // Between double quotes a backslash before most characters is an ordinary character.
      if (quote == '"' && next != '"' && next != '\\' && next != '$' && next != '`') word += c;
      word += next;
    } else {
      word += c;
    }
  }
  if (quote != 0) return std::nullopt;
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> run_words(const Job& job, const std::string& gpucast, size_t* options_end) {
  std::vector<std::string> words{gpucast, "run", "--as-job"};
  const auto option = [&](const char* name, const std::string& value) { words.push_back(fmt::format("{}={}", name, value)); };
  if (!job.gpu.empty()) option("--gpu", job.gpu);
  if (!job.cudnn.empty()) option("--cudnn", job.cudnn);
  if (job.gpus > 0) option("--gpus", std::to_string(job.gpus));
  if (job.world_size > 0) option("--world-size", std::to_string(job.world_size));
  if (!job.ranks.empty()) option("--ranks", job.ranks);
  if (!job.steps.empty()) option("--steps", job.steps);
  if (job.timeout_s > 0) option("--timeout", fmt::format("{}", job.timeout_s));
  if (job.confidence > 0) option("--confidence", fmt::format("{}", job.confidence));
  if (!job.output.empty()) option("--output", job.output);
  if (job.force) words.emplace_back("--force");
  if (job.enforce_capacity) words.emplace_back("--enforce-capacity");
  if (job.measure_host) words.emplace_back("--measure-host");
  for (const std::string& what_if : job.what_ifs) option("--what-if", what_if);
  *options_end = words.size();
  words.emplace_back("--");
  words.insert(words.end(), job.command.begin(), job.command.end());
  return words;
}

}  // namespace gpucast::run
