#include "src/search/runs.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <utility>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "src/base/say.h"
#include "src/base/user_folder.h"
#include "src/run/batch_results.h"
#include "src/run/child_process.h"
#include "src/run/session_folder.h"
#include "src/search/run_cache.h"
#include "src/search/run_key.h"

namespace gpucast::search {
namespace {

constexpr int kSilentMs = 30'000;  // no run ended for so long: a line says that they go on

volatile std::sig_atomic_t batch_pid = 0;
volatile std::sig_atomic_t interrupts = 0;

void pass_on(int /*signal*/) {
  interrupts = interrupts + 1;
  if (batch_pid > 0) kill(batch_pid, SIGINT);
}

// While it exists, Ctrl-C goes to the batch, which ends its runs and then itself.
class PassOnInterrupts {
 public:
  PassOnInterrupts() {
    struct sigaction action {};
    action.sa_handler = pass_on;
    for (const auto& [signal, former] : former_) sigaction(signal, &action, former);
  }
  ~PassOnInterrupts() {
    for (const auto& [signal, former] : former_) sigaction(signal, former, nullptr);
  }
  PassOnInterrupts(const PassOnInterrupts&) = delete;
  PassOnInterrupts& operator=(const PassOnInterrupts&) = delete;

 private:
  struct sigaction interrupt_ {
  }, terminate_{};
  std::array<std::pair<int, struct sigaction*>, 2> former_{{{SIGINT, &interrupt_}, {SIGTERM, &terminate_}}};
};

}  // namespace

// One `gpucast batch -`: jobs go to its input, results come from its output.
class Runs::Batch {
 public:
  explicit Batch(int64_t at_a_time) : errors_(run::nameless_file()) {
    run::Pipe jobs = run::make_pipe(), results = run::make_pipe();
    run::Program program;
    program.path = "/proc/self/exe";
    program.words = {"gpucast", "batch", "-"};
    if (at_a_time > 0) program.words.insert(program.words.end(), {"--jobs", std::to_string(at_a_time)});
    program.environment = run::own_environment();
    program.folder = ".";
    program.input = jobs.reader.get();
    program.output = results.writer.get();
    program.errors = errors_.get();
    program.death_signal = SIGTERM;
    pid_ = run::start_process(program);
    batch_pid = pid_;
    jobs_ = std::move(jobs.writer);
    results_ = std::move(results.reader);
  }
  ~Batch() {
    jobs_.reset();
    if (waiting_ > 0) kill(pid_, SIGINT);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    batch_pid = 0;
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Returns the job's name.
  std::string send(run::Job job) {
    job.name = std::to_string(++sent_);
    const std::string line = run::job_line(job);
    for (size_t done = 0; done < line.size();) {
      const ssize_t written = write(jobs_.get(), line.data() + done, line.size() - done);
      if (written < 0 && errno != EINTR) fail();
      if (written > 0) done += static_cast<size_t>(written);
    }
    ++waiting_;
    return job.name;
  }

  // The next result, of any job.
  Json receive() {
    size_t end = 0;
    const auto begin = std::chrono::steady_clock::now();
    while ((end = buffer_.find('\n')) == std::string::npos) {
      pollfd result{results_.get(), POLLIN, 0};
      if (poll(&result, 1, kSilentMs) == 0) {
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
        say("{}gpucast: {} {}, for {:.0f} s so far\n", isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "", waiting_,
            waiting_ == 1 ? "run goes on" : "runs go on or wait", waited.count());
        continue;
      }
      std::array<char, 1 << 16> part;
      const ssize_t size = read(results_.get(), part.data(), part.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) fail();
      buffer_.append(part.data(), static_cast<size_t>(size));
    }
    Json result = Json::parse(std::string_view(buffer_).substr(0, end));
    buffer_.erase(0, end + 1);
    --waiting_;
    return result;
  }

 private:
  [[noreturn]] void fail() {
    waiting_ = 0;  // it has ended
    if (interrupts > 0) throw Interrupted();
    std::array<char, 4096> text{};
    const ssize_t size = pread(errors_.get(), text.data(), text.size(), 0);
    throw Error("the batch of runs ended before its jobs", "",
                size > 0 ? "it said: " + run::last_lines(std::string(text.data(), static_cast<size_t>(size)), 400) : "try again");
  }

  pid_t pid_ = -1;
  run::Fd jobs_, results_, errors_;
  std::string buffer_;
  int64_t sent_ = 0, waiting_ = 0;
};

namespace {

run::JobProblem problem_of(const Json& error) {
  return {error.value("code", ""), error.value("message", ""), error.value("where", ""), error.value("to_do", "")};
}

Run ended(const RunSpec& spec, const Json& result, const std::string& folder) {
  Run run;
  run.spec = spec;
  run.seconds = result.value("seconds", 0.0);
  run.printed = result.value("printed", "");
  if (result["error"].is_object()) {
    run.problem = problem_of(result["error"]);
    run.end = run.problem->code == "out_of_memory" ? RunEnd::out_of_memory : RunEnd::failed;
    if (run.end == RunEnd::out_of_memory) run.captures = captures_in(folder);
    return run;
  }
  run.captures = captures_in(folder);
  run.end = RunEnd::captured;
  return run;
}

// Whether it failed because another program, such as another run, listens at the network port that it wants.
bool met_another(const Run& run) {
  if (run.end != RunEnd::failed) return false;
  const std::string text = run.problem->message + run.printed;
  return text.find("EADDRINUSE") != std::string::npos || text.find("ddress already in use") != std::string::npos;
}

}  // namespace

Runs::Runs(RunsOptions options) : options_(std::move(options)) {
  if (options_.cache_folder.empty()) options_.cache_folder = default_cache_folder();
  if (options_.cache_folder.empty())
    throw Error("there is no folder for the cache of runs: neither HOME nor XDG_CACHE_HOME is set", "", "name one: --cache FOLDER");
}

Runs::~Runs() = default;

std::vector<Run> Runs::run(const std::vector<RunSpec>& specs) {
  const RunCache cache(options_.cache_folder);
  std::vector<Run> out(specs.size());
  RunKeys keys;
  std::map<std::string, std::vector<size_t>> by_key;  // equal specs run once
  for (size_t i = 0; i < specs.size(); ++i) by_key[keys.of(specs[i])].push_back(i);
  const auto take = [&](const std::vector<size_t>& places, const Run& run) {
    for (const size_t place : places) out[place] = run;
    if (options_.on_end) options_.on_end(run);
  };
  const PassOnInterrupts pass_on_interrupts;
  struct Sent {
    const std::string* key;
    std::string folder;
  };
  std::map<std::string, Sent> sent;  // by the job's name
  const auto send = [&](const std::string& key) {
    std::string folder = cache.begin(key);
    const std::string name = batch_->send(job_of(specs[by_key[key].front()], folder + "/run.gpucast"));
    sent[name] = {&key, std::move(folder)};
  };
  std::vector<const std::string*> again;
  const auto receive = [&] {
    const Json result = batch_->receive();
    const auto found = sent.find(result.value("name", ""));
    if (found == sent.end()) return;
    const Sent done = found->second;
    sent.erase(found);
    const auto& places = by_key[*done.key];
    const Run run = ended(specs[places.front()], result, done.folder);
    if (met_another(run) && !take_turns_) {
      again.push_back(done.key);
      return;
    }
    if (!run.captures.empty()) cache.keep(*done.key, run);
    take(places, run);
  };
  for (const auto& [key, places] : by_key) {
    if (!options_.fresh) {
      if (const auto found = cache.find(key, specs[places.front()])) {
        take(places, *found);
        continue;
      }
    }
    if (!batch_) batch_ = std::make_unique<Batch>(options_.at_a_time);
    send(key);
    while (take_turns_ && !sent.empty()) receive();
  }
  while (!sent.empty()) receive();
  take_turns_ = take_turns_ || !again.empty();
  for (const std::string* key : again) {
    send(*key);
    while (!sent.empty()) receive();
  }
  return out;
}

std::vector<std::shared_ptr<const Facts>> facts_of(const Run& run) {
  std::vector<std::shared_ptr<const Facts>> out;
  out.reserve(run.captures.size());
  for (const std::string& path : run.captures) out.push_back(follow(read_trace(path)));
  return out;
}

std::string default_cache_folder() {
  const std::string folder = user_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? "" : folder + "/gpucast/runs";
}

}  // namespace gpucast::search
