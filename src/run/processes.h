// Processes as /proc shows them: which there are below this one, whether they run, and their end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gpucast::run {

struct ProcessStat {
  pid_t parent = 0;
  char state = '?';       // R, S, D, T (stopped), Z (zombie), ...
  int64_t cpu_ticks = 0;  // user and system, of all its threads
  int wait_status = 0;    // of a zombie, as waitpid() gives it
};
// Unset: the process is gone.
std::optional<ProcessStat> process_stat(pid_t pid);

// Not gone, and no zombie.
bool is_running(pid_t pid);

// As a shell shows it, of waitpid()'s status: the exit code, or 128 + signal.
int shell_exit_code(int wait_status);

// Every living process below this one, nearest first. Of a subreaper also what a dead parent left: that is below it, too.
std::vector<pid_t> descendants();
// The same without the processes `others` and what is below them.
std::vector<pid_t> descendants_but(const std::set<pid_t>& others);
// Between this process and `pid`, nearest to `pid` first; neither of the two.
std::vector<pid_t> ancestors_below_us(pid_t pid);
// Other processes with this session in their environment, wherever they are.
std::vector<pid_t> processes_under(const std::string& session_folder);

// Without the resource trackers of Python's multiprocessing: these end by themselves once all that they serve are gone, and remove the
// semaphores and the shared memory that have names.
std::vector<pid_t> without_resource_trackers(std::vector<pid_t> processes);

// Stops all below this process, kills and reaps it, for 10 s at most: none starts another or goes on to its next command meanwhile.
void end_descendants();

// While one lives, writing to a closed pipe (`gpucast run ... | head`) is an error and not the end: what we made can still be removed.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
};

}  // namespace gpucast::run
