// Processes as /proc shows them: lists the descendants of this one, reads their state, and ends them.
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

// Whether the process exists and is no zombie.
bool is_running(pid_t pid);

// The exit code of waitpid()'s status as a shell shows it: a signal counts as 128 + signal.
int shell_exit_code(int wait_status);

// Every living process below this one, nearest first. If this process is a subreaper, that includes children of dead parents.
std::vector<pid_t> descendants();
// The same without the processes `others` and what is below them.
std::vector<pid_t> descendants_but(const std::set<pid_t>& others);
// The processes between this one and `pid`, nearest to `pid` first, without these two.
std::vector<pid_t> ancestors_below_us(pid_t pid);
// All other processes that have this session in their environment, whatever their parents are.
std::vector<pid_t> processes_under(const std::string& session_folder);

// Removes from the list the resource trackers of Python's multiprocessing. They exit once all processes that they serve are gone, and then
// remove named semaphores and named shared memory.
std::vector<pid_t> without_resource_trackers(std::vector<pid_t> processes);

// Stops all processes below this one, then kills and reaps them, for 10 s at most. A stopped process can neither start another nor go on
// to its next command.
void end_descendants();

// While one exists, writing to a closed pipe (`gpucast run ... | head`) is an error and does not kill gpucast: it can still clean up.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
};

}  // namespace gpucast::run
