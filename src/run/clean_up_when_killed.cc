#include "src/run/clean_up_when_killed.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "src/base/seconds_since.h"
#include "src/run/processes.h"
#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

// All that the cleaning process does.
[[noreturn]] void clean_up_when_closed(int pipe, const std::string& session_folder, const std::string& file) {
  setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);  // of `killall gpucast`: the run ends, too
  const int nothing = open("/dev/null", O_RDWR);
  for (int standard = 0; nothing >= 0 && standard < 3; ++standard) dup2(nothing, standard);
  // This process is a copy, with copies of all open files. A reader may wait until the last copy of a pipe is closed.
  if (DIR* dir = opendir("/proc/self/fd")) {
    std::vector<int> open_files;
    while (const dirent* entry = readdir(dir)) open_files.push_back(std::atoi(entry->d_name));
    for (const int file_descriptor : open_files) {
      if (file_descriptor > 2 && file_descriptor != pipe) close(file_descriptor);
    }
  }
  char byte = 0;
  ssize_t got = -1;
  while ((got = read(pipe, &byte, 1)) < 0 && errno == EINTR) continue;
  if (got != 0) _exit(0);
  const auto start = Clock::now();
  for (auto alive = processes_under(session_folder); !alive.empty() && seconds_since(start) < 10; alive = processes_under(session_folder)) {
    if (seconds_since(start) < 2) alive = without_resource_trackers(alive);
    for (const pid_t pid : alive) kill(pid, SIGSTOP);
    for (const pid_t pid : alive) kill(pid, SIGKILL);
    usleep(10'000);
  }
  remove_session(session_folder);
  unlink(file.c_str());
  _exit(0);
}

}  // namespace

CleanUpWhenKilled::CleanUpWhenKilled(const std::string& session_folder, const std::string& file) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  // Forks twice, so that the cleaning process is no child of this one: a run ends all its children.
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

}  // namespace gpucast::run
