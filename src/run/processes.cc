#include "src/run/processes.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <sstream>

#include "src/base/read_file.h"
#include "src/base/seconds_since.h"

namespace gpucast::run {
namespace {

bool is_resource_tracker(pid_t pid) {
  return read_file(fmt::format("/proc/{}/cmdline", pid)).find("multiprocessing.resource_tracker") != std::string::npos;
}

}  // namespace

// The command name in the line may contain any character, so count fields from the last ')'.
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

bool is_running(pid_t pid) {
  const auto stat = process_stat(pid);
  return stat && stat->state != 'Z' && stat->state != 'X';
}

int shell_exit_code(int wait_status) { return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status); }

std::vector<pid_t> without_resource_trackers(std::vector<pid_t> processes) {
  processes.erase(std::remove_if(processes.begin(), processes.end(), is_resource_tracker), processes.end());
  return processes;
}

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
  std::vector<pid_t> processes = children[getpid()];
  for (size_t i = 0; i < processes.size(); ++i) {
    const std::vector<pid_t>& below = children[processes[i]];
    processes.insert(processes.end(), below.begin(), below.end());
  }
  return processes;
}

std::vector<pid_t> ancestors_below_us(pid_t pid) {
  std::vector<pid_t> ancestors;
  for (auto stat = process_stat(pid); stat && stat->parent > 1 && stat->parent != getpid(); stat = process_stat(ancestors.back()))
    ancestors.push_back(stat->parent);
  return ancestors;
}

std::vector<pid_t> processes_under(const std::string& session_folder) {
  const std::string variable = fmt::format("GPUCAST_SESSION={}", session_folder) + '\0';
  std::vector<pid_t> processes;
  if (DIR* dir = opendir("/proc")) {
    while (const dirent* entry = readdir(dir)) {
      const pid_t pid = std::atoi(entry->d_name);
      if (pid <= 0 || pid == getpid()) continue;
      if (('\0' + read_file(fmt::format("/proc/{}/environ", pid))).find('\0' + variable) != std::string::npos && is_running(pid))
        processes.push_back(pid);
    }
    closedir(dir);
  }
  return processes;
}

void end_descendants() {
  const auto start = Clock::now();
  bool trackers_end = true;
  while (seconds_since(start) < 10) {
    std::set<pid_t> stopped;
    for (bool found_new = true; found_new;) {
      found_new = false;
      for (const pid_t pid : trackers_end ? without_resource_trackers(descendants()) : descendants()) {
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
    const auto alive = descendants();
    if (alive.empty()) return;
    trackers_end = trackers_end && !without_resource_trackers(alive).empty();
  }
}

NoSigpipe::NoSigpipe() { std::signal(SIGPIPE, SIG_IGN); }
NoSigpipe::~NoSigpipe() { std::signal(SIGPIPE, SIG_DFL); }

}  // namespace gpucast::run
