#include "src/run/batch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/base/say.h"
#include "src/base/seconds_since.h"
#include "src/explain/what_if.h"
#include "src/run/batch_job.h"
#include "src/run/batch_results.h"
#include "src/run/child_process.h"
#include "src/run/fork_server.h"
#include "src/run/fork_servers.h"
#include "src/run/job_source.h"
#include "src/run/processes.h"
#include "src/run/result_file.h"
#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPrintedBytes = 4000;
constexpr double kRunsOwnGrace_s = 45;  // after a job's timeout; only a stuck run needs longer to end
constexpr double kInterruptGrace_s = 15;
constexpr int kProgressInterval_ms = 1000;
constexpr uint64_t kJobMemoryBytes = uint64_t{2} << 30;  // to choose how many at a time

// One job for each processor, unless memory is too small for that many.
int64_t default_at_a_time() {
  cpu_set_t set;
  int64_t count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  std::ifstream memory("/proc/meminfo");
  for (std::string name, unit; memory >> name;) {
    uint64_t kib = 0;
    memory >> kib;
    std::getline(memory, unit);
    if (name == "MemAvailable:") count = std::min(count, static_cast<int64_t>((kib << 10) / kJobMemoryBytes));
  }
  return std::max<int64_t>(count, 1);
}

std::vector<std::string> environment_of(const Job& job) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : own_environment()) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  variables.erase("GPUCAST_SESSION");
  variables.erase("GPUCAST_VGPU_PROFILE");
  for (const auto& [name, value] : job.environment) {
    if (value) {
      variables[name] = *value;
    } else {
      variables.erase(name);
    }
  }
  std::vector<std::string> environment;
  environment.reserve(variables.size());
  for (const auto& [name, value] : variables) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

// A job that has been begun. A forked job waits in its server's queue, then for the server's answer, and then it is a run. A fresh job is
// a run at once.
struct Begun {
  Job job;
  std::vector<std::string> command;  // that the process starts with: the what-ifs may have changed the job's
  std::vector<std::string> environment;
  std::optional<ForkableJob> forkable;
  ForkServer* server = nullptr;  // the server whose queue it is in
  Clock::time_point start;
  Fd answer, result, log;
  std::string answered, run_json;
  pid_t run = -1;
  std::optional<int> status;  // of the run, as waitpid() gives it
  std::optional<JobProblem> problem;
  bool forked = false, timed_out = false;

  bool sent() const { return answer || run > 0; }
  bool ended() const { return status && !result && !answer; }
};

class Batch {
 public:
  Batch(const BatchOptions& options)
      : options_(options),
        gpucast_(fs::read_symlink("/proc/self/exe").string()),
        source_(options.jobs),
        results_(options.output),
        at_a_time_(options.at_a_time > 0 ? options.at_a_time : default_at_a_time()),
        progress_(isatty(STDERR_FILENO) == 1),
        servers_(library_folder()) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // runs that a fork server made become our children
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_ = Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) throw Error(fmt::format("cannot wait for signals: {}", std::strerror(errno)));
  }

  int run() {
    while (!interrupted_ && (source_.fd() >= 0 || !waiting_.empty() || !begun_.empty())) {
      begin_jobs();
      send_to_servers();  // before waiting: no event would come for a job whose server is already ready
      show_progress();
      wait_and_read();
      end_late_jobs();
      finish_jobs();
    }
    clear_progress();
    if (interrupted_) return end_interrupted();
    servers_.end_all();
    say("gpucast: {} of {} jobs fit, {} do not, {} failed\n", tally_.fit, tally_.job_count(), tally_.do_not_fit, tally_.failed);
    return tally_.failed > 0 ? kExitFailed : tally_.do_not_fit > 0 ? kExitNo : kExitYes;
  }

 private:
  // ---- taking and beginning jobs

  void accept_line(const JobSource::Line& line) {
    if (line.text.find_first_not_of(" \t\r") == std::string::npos) return;
    ParsedJob parsed = parse_job(line.text, line.number, options_.defaults);
    const std::string name = parsed.job.name;
    if (!names_.insert(name).second) {
      parsed.job.name = fmt::format("line {}", line.number);
      parsed.problem = JobProblem{"bad_job", fmt::format("another job is named '{}' already", name),
                                  fmt::format("line {} of the jobs", line.number), "give each job a name of its own"};
    } else if (const auto former = results_.former.status_by_name.find(name); former != results_.former.status_by_name.end()) {
      tally_.count(former->second);
      return;
    }
    if (parsed.problem) {
      JobEnd end;
      end.name = parsed.job.name;
      end.problem = parsed.problem;
      write_result(end);
    } else {
      waiting_.push_back(std::move(parsed.job));
    }
  }

  void begin_jobs() {
    while (!waiting_.empty() && static_cast<int64_t>(begun_.size()) < at_a_time_) {
      Job job = std::move(waiting_.front());
      waiting_.pop_front();
      if (!first_start_) first_start_ = Clock::now();
      begin_job(std::move(job));
    }
  }

  void begin_job(Job job) {
    Begun begun;
    begun.environment = environment_of(job);
    begun.start = Clock::now();
    begun.job = std::move(job);
    try {
      begun.log = open_log(begun.job);
      begun.command = change_command(begun.job.command, begun.job.what_ifs).command;
      const bool starts_shell = begun.job.world_size > 0;  // which starts the command once for each rank
      if (!options_.fresh && !starts_shell) begun.forkable = forkable(begun.command, begun.environment, begun.job.folder);
      if (begun.forkable) {
        // Threads that spin take the cores of the other jobs. But their time is part of the host's time.
        begun.forkable->key.shares_cores = at_a_time_ > 1 && !begun.job.measure_host;
        begun.server = servers_.find_or_start(begun.forkable->key, begun.environment, begun.job.folder,
                                              [this](const ForkServer& server) { return is_waited_for(server); });
      }
      if (!begun.server) start_fresh(&begun);
      begun_.push_back(std::move(begun));
    } catch (const Error& error) {
      JobEnd end;
      end.name = begun.job.name;
      end.problem = JobProblem{"cannot_start", error.what(), error.where, error.hint};
      write_result(end);
    }
  }

  // The script's output: a file, so that nothing waits for us to read it.
  static Fd open_log(const Job& job) {
    if (job.log.empty()) return nameless_file();
    const std::string path = (fs::path(job.folder) / job.log).string();
    Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!file) throw Error(fmt::format("cannot write the log: {}", std::strerror(errno)), path, "name another file as \"log\"");
    return file;
  }

  void start_fresh(Begun* begun) {
    size_t unused = 0;
    Pipe result = make_pipe();
    Program program;
    program.path = gpucast_;
    program.words = run_words(begun->job, gpucast_, &unused);
    program.environment = begun->environment;
    program.folder = begun->job.folder;
    program.output = result.writer.get();
    program.errors = begun->log.get();
    program.death_signal = SIGTERM;  // a run that gets it cleans up
    begun->start = Clock::now();
    begun->server = nullptr;
    begun->forked = false;
    begun->run = start_process(program);
    begun->result = std::move(result.reader);
  }

  // ---- fork servers

  bool is_waited_for(const ForkServer& server) const {
    return std::any_of(begun_.begin(), begun_.end(), [&](const Begun& begun) { return begun.server == &server; });
  }

  void send_to_servers() {
    for (Begun& begun : begun_) {
      if (!begun.server || begun.sent()) continue;
      if (begun.server->state() == ForkServer::State::ready) send(&begun);
      if (begun.server && begun.server->state() == ForkServer::State::unusable) run_fresh_instead(&begun);
    }
  }

  void send(Begun* begun) {
    Pipe result = make_pipe(), answer = make_pipe();
    ForkRequest request;
    request.run_words = run_words(begun->job, gpucast_, &request.options_end);
    request.command = begun->command;
    request.environment = begun->environment;
    request.folder = fs::absolute(begun->job.folder).string();
    request.python = begun->forkable->python;
    request.result = result.writer.get();
    request.log = begun->log.get();
    request.answer = answer.writer.get();
    begun->start = Clock::now();
    if (!begun->server->send(request)) return;
    begun->result = std::move(result.reader);
    begun->answer = std::move(answer.reader);
  }

  void run_fresh_instead(Begun* begun) {
    begun->answer.reset();
    begun->result.reset();
    begun->answered.clear();
    try {
      start_fresh(begun);
    } catch (const Error& error) {
      fail_to_start(begun, error);
    }
  }

  // As a run that ended at once.
  static void fail_to_start(Begun* begun, const Error& error) {
    begun->server = nullptr;
    begun->status = kExitFailed << 8;
    begun->problem = JobProblem{"cannot_start", error.what(), error.where, error.hint};
  }

  // The run's process id, or that the job must have a process of its own, or (it died) nothing.
  void read_answer(Begun* begun) {
    std::array<char, 64> part{};
    const ssize_t size = read(begun->answer.get(), part.data(), part.size());
    if (size < 0) return;
    begun->answered.append(part.data(), static_cast<size_t>(size));
    if (size > 0 && !begun->answered.ends_with('\n')) return;
    const int run = std::atoi(begun->answered.c_str());
    if (run <= 0) {
      run_fresh_instead(begun);
      return;
    }
    begun->answer.reset();
    begun->server = nullptr;
    begun->forked = true;
    begun->run = run;
    if (const auto early = unclaimed_.find(run); early != unclaimed_.end()) begun->status = early->second;
    unclaimed_.erase(run);
  }

  // ---- waiting

  void wait_and_read() {
    std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
    const auto add = [&](int fd) { polled.push_back({fd, POLLIN, 0}); };
    if (source_.fd() >= 0) add(source_.fd());
    for (const auto& server : servers_.servers()) {
      if (server->state() != ForkServer::State::unusable) add(server->socket());
    }
    for (const Begun& begun : begun_) {
      if (begun.answer) add(begun.answer.get());
      if (begun.result && begun.sent()) add(begun.result.get());
    }
    if (poll(polled.data(), polled.size(), kProgressInterval_ms) <= 0) return;
    std::set<int> readable;
    for (const pollfd& entry : polled) {
      if (entry.revents != 0) readable.insert(entry.fd);
    }
    for (const auto& server : servers_.servers()) {
      if (readable.contains(server->socket())) server->read_news();
    }
    // A run's result ends after the run has started, so read the servers' answers first.
    for (Begun& begun : begun_) {
      if (begun.answer && readable.contains(begun.answer.get())) {
        read_answer(&begun);
      } else if (begun.result && readable.contains(begun.result.get())) {
        read_result(&begun);
      }
    }
    if (readable.contains(source_.fd())) {
      for (const JobSource::Line& line : source_.read_lines()) accept_line(line);
    }
    if (readable.contains(signals_.get())) read_signals();
  }

  static void read_result(Begun* begun) {
    std::array<char, 1 << 16> part;
    const ssize_t size = read(begun->result.get(), part.data(), part.size());
    if (size < 0) return;
    if (size == 0) begun->result.reset();
    begun->run_json.append(part.data(), static_cast<size_t>(size));
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGCHLD) interrupted_ = true;
    }
    reap();
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto ended = std::find_if(begun_.begin(), begun_.end(), [&](const Begun& begun) { return begun.run == pid; });
      if (ended != begun_.end()) {
        ended->status = status;
      } else {
        unclaimed_[pid] = status;  // a run whose answer has not been read yet, or a process that a run left running
      }
    }
    if (std::none_of(begun_.begin(), begun_.end(), [](const Begun& begun) { return static_cast<bool>(begun.answer); })) unclaimed_.clear();
  }

  // ---- the end of jobs

  // A run ends at its own timeout. A run that does not is stuck.
  void end_late_jobs() {
    for (Begun& begun : begun_) {
      if (begun.job.timeout_s <= 0 || begun.run <= 0 || begun.status || begun.timed_out) continue;
      if (seconds_since(begun.start) < begun.job.timeout_s + kRunsOwnGrace_s) continue;
      begun.timed_out = true;
      kill(begun.run, SIGKILL);
    }
  }

  void finish_jobs() {
    for (auto begun = begun_.begin(); begun != begun_.end();) {
      if (!begun->ended()) {
        ++begun;
        continue;
      }
      const Begun done = std::move(*begun);
      begun = begun_.erase(begun);
      if (WIFSIGNALED(*done.status)) end_strays();
      if (interrupted_ && !WIFEXITED(*done.status)) continue;
      finish_job(done);
    }
  }

  void finish_job(const Begun& done) {
    JobEnd end;
    end.name = done.job.name;
    end.exit_code = WIFEXITED(*done.status) ? WEXITSTATUS(*done.status) : int{kExitFailed};
    end.seconds = seconds_since(done.start);
    end.forked = done.forked;
    end.run_json = done.run_json;
    const std::string log = end_of_log(done);
    end.problem = done.problem;
    if (done.timed_out) {
      end.problem =
          JobProblem{"timeout", fmt::format("the run did not end within {} s", done.job.timeout_s), "", "give it more time: \"timeout_s\""};
    } else if (WIFSIGNALED(*done.status)) {
      const int signal = WTERMSIG(*done.status);
      end.problem =
          JobProblem{"killed", fmt::format("gpucast run was ended from outside (signal {}, {})", signal, strsignal(signal)), "", ""};
    } else if (end.exit_code == kExitInterrupted) {
      end.problem = JobProblem{"killed", "gpucast run was interrupted from outside", "", ""};
    } else if (done.run_json.empty() && !done.problem) {
      end.problem = JobProblem{"failed", last_lines(log, 300), "", ""};
    }
    end.printed = log;
    write_result(end);
  }

  // The last lines that the script itself printed. gpucast's own messages are in the result already.
  static std::string end_of_log(const Begun& done) {
    struct stat status {};
    if (fstat(done.log.get(), &status) != 0) return "";
    int64_t size = status.st_size;
    if (const auto printed = number_after(done.run_json, "\"printed_bytes\":"); printed && *printed >= 0) size = std::min(size, *printed);
    const int64_t begin = std::max<int64_t>(0, size - static_cast<int64_t>(kPrintedBytes) - 1);
    std::string text(static_cast<size_t>(size - begin), '\0');
    const ssize_t got = pread(done.log.get(), text.data(), text.size(), begin);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return last_lines(text, kPrintedBytes);
  }

  // `key` is the last key of run_json.
  static std::optional<int64_t> number_after(const std::string& json, const std::string& key) {
    const size_t last = json.rfind(key);
    if (last == std::string::npos) return std::nullopt;
    return std::atoll(json.c_str() + last + key.size());
  }

  void write_result(const JobEnd& end) {
    clear_progress();
    ++done_now_;
    if (!results_.write_line(result_line(end, &tally_))) interrupted_ = true;
  }

  // Kills the processes that a killed run left running: all below us that belong to no server and no other run.
  void end_strays() {
    std::set<pid_t> ours;
    for (const auto& server : servers_.servers()) ours.insert(server->pid());
    for (const Begun& begun : begun_) {
      if (begun.answer) return;  // a run that is about to report its process id looks like a stray
      if (begun.run > 0) ours.insert(begun.run);
    }
    for (int i = 0; i < 10; ++i) {
      bool any_killed = false;
      for (const pid_t stray : descendants_but(ours)) any_killed = kill(stray, SIGKILL) == 0 || any_killed;
      if (!any_killed) return;
      usleep(1000);
      reap();
    }
  }

  int end_interrupted() {
    const auto start = Clock::now();
    servers_.end_all();
    while (true) {
      bool any = false;
      reap();
      for (Begun& begun : begun_) {
        if (begun.answer) {
          pollfd answer{begun.answer.get(), POLLIN, 0};
          if (poll(&answer, 1, 50) > 0) read_end_of_answer(&begun);
        }
        if (begun.run <= 0 || begun.status) continue;
        any = true;
        kill(begun.run, seconds_since(start) > kInterruptGrace_s ? SIGKILL : SIGTERM);
      }
      if (!any) break;
      usleep(5000);
    }
    for (Begun& begun : begun_) begun.answer.reset();
    end_strays();
    say("gpucast: interrupted after {} jobs; everything that was started was ended\n", done_now_);
    return kExitInterrupted;
  }

  // The server is gone: either the run reports its process id, or there is no run.
  static void read_end_of_answer(Begun* begun) {
    std::array<char, 64> part{};
    const ssize_t size = read(begun->answer.get(), part.data(), part.size() - 1);
    if (size > 0 && std::atoi(part.data()) > 0) begun->run = std::atoi(part.data());
    begun->answer.reset();
  }

  // ---- progress, on a terminal

  void show_progress() {
    if (!progress_ || !first_start_) return;
    const auto to_do = static_cast<int64_t>(waiting_.size() + begun_.size());
    say("\r\x1b[K{}", progress_text(tally_, done_now_, to_do, seconds_since(*first_start_), source_.fd() >= 0));
    std::fflush(stderr);
    shown_ = true;
  }
  void clear_progress() {
    if (shown_) say("\r\x1b[K");
    shown_ = false;
  }

  const BatchOptions& options_;
  std::string gpucast_;
  JobSource source_;
  ResultFile results_;
  int64_t at_a_time_;
  bool progress_, shown_ = false, interrupted_ = false;
  Fd signals_;
  std::set<std::string> names_;
  std::deque<Job> waiting_;
  std::list<Begun> begun_;
  ForkServers servers_;
  std::map<pid_t, int> unclaimed_;
  Tally tally_;
  int64_t done_now_ = 0;
  std::optional<Clock::time_point> first_start_;
};

}  // namespace

int run_batch(const BatchOptions& options) {
  const NoSigpipe no_sigpipe;
  return Batch(options).run();
}

}  // namespace gpucast::run
