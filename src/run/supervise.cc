#include "src/run/supervise.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/base/seconds_since.h"
#include "src/run/processes.h"
#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPoll{5};
constexpr double kWriteGrace_s = 30;       // after the timeout, for a process to write its capture
constexpr double kOtherRanksGrace_s = 20;  // for the other ranks, after the first one is done
constexpr double kIdle_s = 2;              // a process that uses no CPU for this long and has not trained is no rank
constexpr double kPythonStart_s = 2;       // for a Python in the background to load our hooks
constexpr milliseconds kDrain{30};         // for `tee` and the like to pass on the script's output
constexpr double kOwnExit_s = 25;          // for a script that reached its own end to exit

Json read_json(const std::string& path) { return Json::parse(read_file(path)); }

// Errors after which the process waits forever. Other errors (PyTorch missing) are reported only when nothing was captured.
bool is_final(const Json& error) { return error.value("final", false); }

class Supervisor {
 public:
  Supervisor(std::string session_folder, double timeout_s) : folder_(std::move(session_folder)), timeout_s_(timeout_s) {}

  Supervised run(const std::string& program_path, const std::vector<std::string>& command, const std::vector<std::string>& environment,
                 const std::optional<Adopted>& adopted) {
    block_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (adopted) {
      hand_over(*adopted, environment);
    } else {
      start(program_path, command, environment);
    }
    Supervised result;
    result.end = watch();
    if (result.end == Supervised::End::captured) let_finished_scripts_exit();
    end_descendants();
    collect(result);
    return result;
  }

 private:
  void block_signals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals_, signal);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
  }

  void start(const std::string& program_path, const std::vector<std::string>& command, const std::vector<std::string>& environment) {
    std::vector<char*> argv, env;
    for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    for (const auto& entry : environment) env.push_back(const_cast<char*>(entry.c_str()));
    argv.push_back(nullptr);
    env.push_back(nullptr);
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) throw Error(fmt::format("cannot start the command: {}", std::strerror(errno)));
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ < 0) throw Error(fmt::format("cannot start the command: {}", std::strerror(errno)));
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
      sigprocmask(SIG_UNBLOCK, &signals_, nullptr);
      std::signal(SIGPIPE, SIG_DFL);
      dup2(STDERR_FILENO, STDOUT_FILENO);
      execve(program_path.c_str(), argv.data(), env.data());
      if (errno == ENOEXEC) {  // a script without "#!": do the same as a shell
        argv.insert(argv.begin(), const_cast<char*>("sh"));
        argv[1] = const_cast<char*>(program_path.c_str());
        execve("/bin/sh", argv.data(), env.data());
      }
      const int error = errno;
      (void)!write(failure[1], &error, sizeof error);
      _exit(127);
    }
    close(failure[1]);
    int error = 0;
    const bool failed = read(failure[0], &error, sizeof error) == sizeof error;
    close(failure[0]);
    if (failed) {
      waitpid(child_, nullptr, 0);
      throw Error(fmt::format("cannot start '{}': {}", command[0], std::strerror(error)));
    }
  }

  // Sends the environment, each entry with a NUL at its end, and then a mark that it is complete. If the process dies meanwhile, it closes
  // its end of the pipe, and reap() notices.
  void hand_over(const Adopted& adopted, const std::vector<std::string>& environment) {
    child_ = adopted.pid;
    std::string text;
    for (const auto& entry : environment) text.append(entry).push_back('\0');
    text += "end";
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t part = write(adopted.pipe, text.data() + sent, text.size() - sent);
      if (part < 0 && errno != EINTR) break;
      sent += static_cast<size_t>(std::max<ssize_t>(part, 0));
    }
    close(adopted.pipe);
  }

  // Waits until there is a reason to end.
  Supervised::End watch() {
    const auto start = Clock::now();
    std::optional<Clock::time_point> first_done, command_ended;
    while (true) {
      const timespec wait{0, std::chrono::nanoseconds(kPoll).count()};
      const int signal = sigtimedwait(&signals_, nullptr, &wait);
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return Supervised::End::interrupted;
      reap();

      const Standing now = standing();
      if (now.again) return Supervised::End::again;
      if (now.gave_up && now.open == 0) return now.done > 0 ? Supervised::End::captured : Supervised::End::gave_up;
      if (now.done > 0 && now.open == 0) {
        if (!first_done) first_done = Clock::now();
        const bool all = now.done + now.died >= now.expected;
        if (all || seconds_since(*first_done) > kOtherRanksGrace_s) return Supervised::End::captured;
      }
      if (command_status_ && now.open == 0) {
        if (now.done > 0) return Supervised::End::captured;
        // A Python that the command left in the background may still begin to use CUDA; nothing else is worth waiting for.
        if (!command_ended) command_ended = Clock::now();
        const bool may_train = any_python_runs() || (seconds_since(*command_ended) < kPythonStart_s && !descendants().empty());
        if (shell_exit_code(*command_status_) != 0 || !may_train) return Supervised::End::exited;
      }
      if (timeout_s_ > 0) {
        const double over_s = seconds_since(start) - timeout_s_;
        if (over_s > 0 && (now.open == 0 || over_s > kWriteGrace_s))
          return now.done > 0 ? Supervised::End::captured : Supervised::End::timed_out;
      }
    }
  }

  // How far the captured processes are.
  struct Standing {
    int64_t done = 0;
    int64_t expected = 1;  // ranks on this machine, as a process that is done reports them
    int64_t open = 0;      // armed processes that are worth waiting for
    int64_t died = 0;      // armed ones that are gone without a capture
    bool gave_up = false;
    bool again = false;
  };

  Standing standing() {
    Standing now;
    std::map<pid_t, bool> open;  // whether it has trained
    bool job_done = false;
    for (const auto& [pid, kinds] : session_files(folder_)) {
      now.again = now.again || kinds.contains("again");
      if (kinds.contains("error") && is_final(read_json(file(pid, "error")))) {
        now.gave_up = true;
      } else if (kinds.contains("armed") && !end_of(pid, kinds).empty()) {
        ++now.done;
        now.expected = std::max(now.expected, read_json(file(pid, "armed")).value("local_world_size", 1));
        job_done = job_done || kinds.contains("stepped");
      } else if (kinds.contains("armed") && is_running(pid)) {
        open[pid] = kinds.contains("stepped");
      } else if (kinds.contains("armed")) {
        ++now.died;
        died_.insert(pid);
      }
    }
    if (job_done && !job_done_) job_done_ = Clock::now();
    for (const auto& [pid, trains] : open) {
      const double idle_s = idle_for_s(pid);
      if (!job_done || is_awaited(trains, idle_s)) ++now.open;
    }
    return now;
  }

  // The file with the end of a captured process: "done"; "written" if it died in the steps that it took after its capture. Otherwise "".
  static std::string end_of(pid_t pid, const std::set<std::string>& kinds) {
    if (kinds.contains("done")) return "done";
    return kinds.contains("written") && !is_running(pid) ? "written" : "";
  }

  // A process of the job has trained and is done. Another process may be a slower rank, or no rank at all: a compile worker, an actor.
  bool is_awaited(bool trains, double idle_s) const {
    if (trains) return idle_s < kOtherRanksGrace_s;
    return idle_s < kIdle_s && seconds_since(*job_done_) < kOtherRanksGrace_s;
  }

  double idle_for_s(pid_t pid) {
    const auto stat = process_stat(pid);
    Activity& activity = activities_[pid];
    if (stat && stat->cpu_ticks != activity.cpu_ticks) activity = {stat->cpu_ticks, Clock::now()};
    return seconds_since(activity.since);
  }

  bool any_python_runs() const {
    for (const auto& [pid, kinds] : session_files(folder_)) {
      if (kinds.contains("python") && is_running(pid)) return true;
    }
    return false;
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      statuses_[pid] = status;
      if (pid == child_) command_status_ = status;
    }
  }

  // A script that reached its own end waits for us, so that its shell does not go on to the next command. Stop the processes above it, let
  // the script exit as it would have, and note its exit code.
  void let_finished_scripts_exit() {
    std::vector<pid_t> leaving;
    bool others = false;
    for (const auto& [pid, kinds] : session_files(folder_)) {
      if (!kinds.contains("done") || !is_running(pid)) continue;
      const std::string reason = read_json(file(pid, "done")).value("reason", "");
      if (reason != "steps" && reason != "timeout") leaving.push_back(pid);
      for (const pid_t above : ancestors_below_us(pid)) {
        kill(above, SIGSTOP);
        others = true;
      }
    }
    for (const pid_t pid : leaving) std::ofstream(file(pid, "go")).flush();
    const auto start = Clock::now();
    for (const pid_t pid : leaving) {
      while (is_running(pid) && seconds_since(start) < kOwnExit_s && !interrupted()) reap();
      // Its parent is stopped, so it cannot collect the status before we read it.
      if (const auto stat = process_stat(pid); stat && stat->state == 'Z') statuses_[pid] = stat->wait_status;
    }
    reap();
    if (others) usleep(static_cast<useconds_t>(std::chrono::microseconds(kDrain).count()));
  }

  bool interrupted() {
    const timespec wait{0, std::chrono::nanoseconds(kPoll).count()};
    const int signal = sigtimedwait(&signals_, nullptr, &wait);
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  }

  void collect(Supervised& result) {
    for (const auto& [pid, kinds] : session_files(folder_)) {
      if (kinds.contains("python")) result.any_python = true;
      if (kinds.contains("torch")) result.torch_json = read_file(file(pid, "torch"));
      if (kinds.contains("idle")) result.any_idle = true;
      if (kinds.contains("error")) {
        const std::string error = read_file(file(pid, "error"));
        const bool first = result.error_json.empty();
        if (first || is_final(Json::parse(error))) result.error_json = error;
      }
      if (!kinds.contains("armed") || (kinds.contains("error") && is_final(read_json(file(pid, "error"))))) continue;
      CapturedProcess process;
      process.pid = pid;
      process.rank = read_json(file(pid, "armed")).value("rank", 0);
      const std::string end = end_of(pid, kinds);
      process.done = !end.empty() && kinds.contains("history");
      process.stepped = kinds.contains("stepped");
      process.died = !process.done && died_.contains(pid);
      if (!end.empty()) {
        const auto done = read_json(file(pid, end.c_str()));
        process.reason = done.value("reason", "");
        process.exception_type = done.value("exception_type", "");
        process.exit_code = static_cast<int>(done.value("exit_code", 0));
        process.exception = done.value("exception", "");
        process.optimizer_steps = done.value("optimizer_steps", 0);
        process.rank = done.value("rank", process.rank);
        if (!done["devices"].empty()) process.devices.clear();
        for (const Json& device : done["devices"]) process.devices.push_back(device.get<int64_t>());
        process.device = process.devices.front();
      }
      if (const auto status = statuses_.find(pid); status != statuses_.end()) {
        result.exit_code = shell_exit_code(status->second);
        if (process.done) process.exit_code = *result.exit_code;
      }
      result.processes.push_back(std::move(process));
    }
    std::stable_sort(result.processes.begin(), result.processes.end(), [](const auto& a, const auto& b) {
      return std::pair(a.rank, a.optimizer_steps == 0) < std::pair(b.rank, b.optimizer_steps == 0);
    });
    if (!result.exit_code && command_status_) result.exit_code = shell_exit_code(*command_status_);
  }

  std::string file(pid_t pid, const char* kind) const { return fmt::format("{}/{}.{}", folder_, pid, kind); }

  std::string folder_;
  double timeout_s_;
  sigset_t signals_{};
  pid_t child_ = -1;
  std::optional<int> command_status_;  // as waitpid() gives it
  std::map<pid_t, int> statuses_;
  struct Activity {
    int64_t cpu_ticks = -1;
    Clock::time_point since = Clock::now();
  };
  std::map<pid_t, Activity> activities_;
  std::set<pid_t> died_;
  std::optional<Clock::time_point> job_done_;
};

}  // namespace

Supervised supervise(const std::string& program_path, const std::vector<std::string>& command, const std::vector<std::string>& environment,
                     const std::string& session_folder, double timeout_s, const std::optional<Adopted>& adopted) {
  return Supervisor(session_folder, timeout_s).run(program_path, command, environment, adopted);
}

}  // namespace gpucast::run
