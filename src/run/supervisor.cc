#include "src/run/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/base/json.h"
#include "src/base/read_file.h"

extern char** environ;

namespace gpucast::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{5};
constexpr double kWriteGrace_s = 30;       // after the timeout, for a process to write its capture
constexpr double kOtherRanksGrace_s = 20;  // after the first rank is done, for the others
constexpr double kIdle_s = 2;              // a process that uses no CPU for so long and has not trained is no rank
constexpr double kPythonStart_s = 2;       // for a Python in the background to load our hooks
constexpr milliseconds kDrain{30};         // for `tee` and the like to pass on what the script printed
constexpr double kOwnExit_s = 25;          // for a script that has ended by itself to exit

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Json read_json(const std::string& path) { return Json::parse(read_file(path)); }

// ---- processes ---------------------------------------------------------------------------------------------------------

struct ProcessStat {
  pid_t parent = 0;
  char state = '?';       // R, S, D, T (stopped), Z (zombie), ...
  int64_t cpu_ticks = 0;  // user and system, of all its threads
  int wait_status = 0;    // of a zombie, as waitpid() gives it
};

// /proc/PID/stat; nothing when the process is gone. The command name in it may hold anything, so count from the last ')'.
std::optional<ProcessStat> process_stat(pid_t pid) {
  const std::string text = read_file(fmt::format("/proc/{}/stat", pid));
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end_of_name + 1));
  ProcessStat stat;
  fields >> stat.state >> stat.parent;
  std::string field, last;
  for (int number = 5; fields >> field; ++number) {  // as proc(5) counts them
    if (number == 14 || number == 15) stat.cpu_ticks += std::atoll(field.c_str());
    last = field;
  }
  stat.wait_status = std::atoi(last.c_str());
  return stat;
}

bool running(pid_t pid) {
  const auto stat = process_stat(pid);
  return stat && stat->state != 'Z' && stat->state != 'X';
}

int exit_code_of(int wait_status) { return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status); }

// Python's, of a multiprocessing that does not fork. It ends once all that it serves are gone, and removes the semaphores and the shared
// memory that they had by name.
bool is_resource_tracker(pid_t pid) {
  return read_file(fmt::format("/proc/{}/cmdline", pid)).find("multiprocessing.resource_tracker") != std::string::npos;
}

std::vector<pid_t> without_trackers(std::vector<pid_t> processes) {
  processes.erase(std::remove_if(processes.begin(), processes.end(), is_resource_tracker), processes.end());
  return processes;
}

// Stop first, so that none starts another or goes on to the next command while its neighbours die.
void end_all() {
  const auto start = Clock::now();
  bool trackers_end = true;
  while (seconds_since(start) < 10) {
    std::set<pid_t> stopped;
    for (bool found_new = true; found_new;) {
      found_new = false;
      for (const pid_t pid : trackers_end ? without_trackers(descendants()) : descendants()) {
        if (!stopped.insert(pid).second) continue;
        kill(pid, SIGSTOP);
        found_new = true;
      }
    }
    for (const pid_t pid : stopped) kill(pid, SIGKILL);
    const auto killed = Clock::now();
    while (seconds_since(killed) < 2) {
      const pid_t pid = waitpid(-1, nullptr, WNOHANG);
      if (pid < 0 && errno == ECHILD) break;
      if (pid == 0) usleep(500);
    }
    const auto left = descendants();
    if (left.empty()) return;
    trackers_end = trackers_end && !without_trackers(left).empty();
  }
}

std::vector<pid_t> ancestors_below_us(pid_t pid) {
  std::vector<pid_t> found;
  for (auto stat = process_stat(pid); stat && stat->parent > 1 && stat->parent != getpid(); stat = process_stat(found.back()))
    found.push_back(stat->parent);
  return found;
}

// ---- the session folder ---------------------------------------------------------------------------------------------------

// Those that have it in their environment.
std::vector<pid_t> processes_under(const std::string& session_folder) {
  const std::string variable = fmt::format("GPUCAST_SESSION={}", session_folder) + '\0';
  std::vector<pid_t> found;
  if (DIR* dir = opendir("/proc")) {
    while (const dirent* entry = readdir(dir)) {
      const pid_t pid = std::atoi(entry->d_name);
      if (pid <= 0 || pid == getpid()) continue;
      if (('\0' + read_file(fmt::format("/proc/{}/environ", pid))).find('\0' + variable) != std::string::npos && running(pid))
        found.push_back(pid);
    }
    closedir(dir);
  }
  return found;
}

// The life of the process that cleans up.
[[noreturn]] void clean_up_when_closed(int pipe, const std::string& session_folder, const std::string& file) {
  setsid();
  const int nothing = open("/dev/null", O_RDWR);
  for (int standard = 0; nothing >= 0 && standard < 3; ++standard) dup2(nothing, standard);
  // Somebody may wait for the end of a file that we have open only because we are a copy.
  if (DIR* dir = opendir("/proc/self/fd")) {
    std::vector<int> open_files;
    while (const dirent* entry = readdir(dir)) open_files.push_back(std::atoi(entry->d_name));
    for (const int one : open_files) {
      if (one > 2 && one != pipe) close(one);
    }
  }
  char byte = 0;
  ssize_t got = -1;
  while ((got = read(pipe, &byte, 1)) < 0 && errno == EINTR) continue;
  if (got != 0) _exit(0);
  const auto start = Clock::now();
  for (auto left = processes_under(session_folder); !left.empty() && seconds_since(start) < 10; left = processes_under(session_folder)) {
    if (seconds_since(start) < 2) left = without_trackers(left);
    for (const pid_t pid : left) kill(pid, SIGSTOP);
    for (const pid_t pid : left) kill(pid, SIGKILL);
    usleep(10'000);
  }
  remove_folder(session_folder);
  unlink(file.c_str());
  _exit(0);
}

// PID -> kinds of files it has written.
std::map<pid_t, std::set<std::string>> session_files(const std::string& folder) {
  std::map<pid_t, std::set<std::string>> files;
  if (DIR* dir = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      const auto dot = name.find('.');
      if (const pid_t pid = std::atoi(name.c_str()); pid > 0 && dot != std::string::npos) files[pid].insert(name.substr(dot + 1));
    }
    closedir(dir);
  }
  return files;
}

// The process stands still for good; others (PyTorch missing) are only told when nothing was captured.
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
    end_all();
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
      if (errno == ENOEXEC) {  // a script without "#!": what a shell would do
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

  // The environment, each entry ended by a NUL, and that it is whole. The process closes its end when it dies: reap() will tell.
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

  // Until there is a reason to end.
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
        // A Python it left running in the background may still be on its way to CUDA; nothing else is worth waiting for.
        if (!command_ended) command_ended = Clock::now();
        const bool may_train = any_python_running() || (seconds_since(*command_ended) < kPythonStart_s && !descendants().empty());
        if (exit_code_of(*command_status_) != 0 || !may_train) return Supervised::End::exited;
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
    int64_t expected = 1;  // ranks on this machine, as far as a process that is done knows
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
      } else if (kinds.contains("armed") && kinds.contains("done")) {
        ++now.done;
        now.expected = std::max(now.expected, read_json(file(pid, "armed")).value("local_world_size", 1));
        job_done = job_done || kinds.contains("stepped");
      } else if (kinds.contains("armed") && running(pid)) {
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

  // A process of the job has trained and is done. Another one may be a slower rank, or none at all: a compile worker, an actor.
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

  bool any_python_running() const {
    for (const auto& [pid, kinds] : session_files(folder_)) {
      if (kinds.contains("python") && running(pid)) return true;
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

  // A script that came to its own end waits for us, so that its shell does not go on to the next command. Stop what is above
  // it, let it exit as it would have, and note its exit code.
  void let_finished_scripts_exit() {
    std::vector<pid_t> leaving;
    bool others = false;
    for (const auto& [pid, kinds] : session_files(folder_)) {
      if (!kinds.contains("done") || !running(pid)) continue;
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
      while (running(pid) && seconds_since(start) < kOwnExit_s && !interrupted()) reap();
      // Its parent is stopped and cannot take the status away.
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
      process.done = kinds.contains("done") && kinds.contains("history");
      process.stepped = kinds.contains("stepped");
      process.died = !process.done && died_.contains(pid);
      if (kinds.contains("done")) {
        const auto done = read_json(file(pid, "done"));
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
        result.exit_code = exit_code_of(status->second);
        if (process.done) process.exit_code = *result.exit_code;
      }
      result.processes.push_back(std::move(process));
    }
    std::stable_sort(result.processes.begin(), result.processes.end(), [](const auto& a, const auto& b) {
      return std::pair(a.rank, a.optimizer_steps == 0) < std::pair(b.rank, b.optimizer_steps == 0);
    });
    if (!result.exit_code && command_status_) result.exit_code = exit_code_of(*command_status_);
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

std::string environment_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::vector<std::string> programs_on_path() {
  std::vector<std::string> names;
  std::istringstream path(environment_or("PATH", ""));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) names.push_back(entry.path().filename());
  }
  return names;
}

bool is_program(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::vector<pid_t> descendants() { return descendants_but({}); }

std::vector<pid_t> descendants_but(const std::set<pid_t>& others) {
  std::map<pid_t, std::vector<pid_t>> children;
  if (DIR* proc = opendir("/proc")) {
    while (const dirent* entry = readdir(proc)) {
      const pid_t pid = std::atoi(entry->d_name);
      if (pid <= 0 || others.contains(pid)) continue;
      if (const auto stat = process_stat(pid); stat && stat->state != 'Z') children[stat->parent].push_back(pid);
    }
    closedir(proc);
  }
  std::vector<pid_t> found = children[getpid()];
  for (size_t i = 0; i < found.size(); ++i) {
    const std::vector<pid_t>& below = children[found[i]];
    found.insert(found.end(), below.begin(), below.end());
  }
  return found;
}

NoSigpipe::NoSigpipe() { std::signal(SIGPIPE, SIG_IGN); }
NoSigpipe::~NoSigpipe() { std::signal(SIGPIPE, SIG_DFL); }

std::string library_folder() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) throw Error("cannot find gpucast's own files: /proc/self/exe cannot be read");
  fs::path folder = (executable.parent_path() / "../lib/gpucast").lexically_normal();
  if (!fs::exists(folder / "vgpu")) folder = (executable.parent_path() / "../libexec/gpucast").lexically_normal();  // a wheel
  for (const char* part : {"python/site/sitecustomize.py", "vgpu/libgpucast_vgpu_core.so"}) {
    if (!fs::exists(folder / part)) {
      throw Error("this installation of gpucast is incomplete", (folder / part).string() + " does not exist",
                  "build or install it again: make install");
    }
  }
  return folder.string();
}

std::string make_session_folder() {
  std::error_code error;
  fs::path temporary = fs::temp_directory_path(error);
  if (error) temporary = "/tmp";
  std::string folder = fs::absolute(temporary / "gpucast-XXXXXX").string();
  if (!mkdtemp(folder.data())) {
    throw Error(fmt::format("cannot make a temporary folder: {}", std::strerror(errno)), folder,
                "set TMPDIR to a folder that can be written");
  }
  return folder;
}

void remove_folder(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

CleanUpWhenKilled::CleanUpWhenKilled(const std::string& session_folder, const std::string& file) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  // Twice, so that it is nobody's child here: what is below us is ended with the run.
  const pid_t between = fork();
  if (between == 0) {
    close(ends[1]);
    if (fork() == 0) clean_up_when_closed(ends[0], session_folder, file);
    _exit(0);
  }
  close(ends[0]);
  if (between < 0) {
    close(ends[1]);
    return;
  }
  while (waitpid(between, nullptr, 0) < 0 && errno == EINTR) continue;
  pipe_ = ends[1];
}

CleanUpWhenKilled::~CleanUpWhenKilled() {
  if (pipe_ < 0) return;
  (void)!write(pipe_, "", 1);
  close(pipe_);
}

std::string find_program(const std::string& program) {
  const bool is_file = fs::is_regular_file(program);
  const std::string hint_run = fmt::format("gpucast run -- python {}", program);
  if (program.find('/') != std::string::npos) {
    if (is_program(program)) return program;
    if (fs::is_directory(program)) throw Error(fmt::format("'{}' is a folder, not a command", program));
    if (!is_file) throw Error(fmt::format("no such command: '{}'", program), "", "check the path");
    throw Error(fmt::format("'{}' is not executable", program), "",
                program.ends_with(".py") ? hint_run : fmt::format("chmod +x {}", program));
  }
  std::istringstream path(environment_or("PATH", "/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::string candidate = (folder.empty() ? std::string(".") : folder) + "/" + program;
    if (is_program(candidate)) return candidate;
  }
  if (program.ends_with(".py")) throw Error(fmt::format("no such command: '{}'", program), "", hint_run);
  if (program == "python" && is_program("/usr/bin/python3")) {
    throw Error("no such command: 'python'", "", "did you mean 'python3'? Or activate the environment that holds PyTorch");
  }
  const auto near = did_you_mean(program, programs_on_path());
  throw Error(fmt::format("no such command: '{}'", program), "",
              near ? fmt::format("did you mean '{}'?", *near) : "check the spelling, and that it is on PATH");
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::vector<std::string> session_environment(const std::string& library_folder, const std::string& session_folder,
                                             const std::optional<std::vector<std::string>>& base) {
  std::vector<std::string> environment;
  std::string python_path = library_folder + "/python/site";
  for (const std::string& variable : base ? *base : own_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    if (name == "PYTHONPATH") {
      if (variable.size() > name.size() + 1) python_path += ":" + variable.substr(name.size() + 1);
    } else if (name != "GPUCAST_SESSION" && name != "GPUCAST_VGPU_PROFILE") {
      environment.push_back(variable);
    }
  }
  environment.push_back("PYTHONPATH=" + python_path);
  environment.push_back("GPUCAST_SESSION=" + session_folder);
  environment.push_back("GPUCAST_VGPU_PROFILE=" + session_folder + "/profile.base");
  return environment;
}

Supervised supervise(const std::string& program_path, const std::vector<std::string>& command, const std::vector<std::string>& environment,
                     const std::string& session_folder, double timeout_s, const std::optional<Adopted>& adopted) {
  return Supervisor(session_folder, timeout_s).run(program_path, command, environment, adopted);
}

}  // namespace gpucast::cli
