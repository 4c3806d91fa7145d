// The batch's side of python/gpucast/fork_server.py: decides which jobs a server can run, and sends them to it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/run/child_process.h"
#include "src/run/session_folder.h"

namespace gpucast::run {

// A command that runs a script, a module or code with Python. A fork server can be started with all of its flags.
struct PythonCommand {
  std::vector<std::string> flags;
  std::string kind;     // script, module, code
  std::string subject;  // the script's path, the module's name, the code
  std::vector<std::string> arguments;
};
std::optional<PythonCommand> parse_python_command(const std::vector<std::string>& command);

// All that a fresh Python's `import torch` may depend on. Jobs with equal keys can share a server.
struct ServerKey {
  std::string program;  // path
  std::string name;     // argv[0]
  std::vector<std::string> flags;
  std::vector<std::string> environment;  // sorted, without variables that describe the shell's state
  std::string folder;                    // the job's folder if PYTHONPATH depends on it; else ""
  bool shares_cores = false;             // with jobs at the same time: OpenMP's threads sleep where they wait for each other
  bool operator==(const ServerKey&) const = default;
};

struct ForkableJob {
  PythonCommand python;
  ServerKey key;
};
// Unset: the job must run in a fresh Python. `environment`: the job's, "NAME=value".
std::optional<ForkableJob> forkable(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                                    const std::string& folder);

struct ForkRequest {
  std::vector<std::string> run_words;  // gpucast run ... -- COMMAND
  size_t options_end = 0;              // the index of "--" in run_words
  std::vector<std::string> command, environment;
  std::string folder;
  PythonCommand python;
  int result = -1, log = -1, answer = -1;  // descriptors: standard output of the run, its standard error, where the server answers
};

class ForkServer {
 public:
  enum class State { starting, ready, unusable };

  // Starts the server in `folder`, which matters if the key depends on it.
  ForkServer(ServerKey key, const std::vector<std::string>& environment, const std::string& folder, const std::string& library_folder);
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  const ServerKey& key() const { return key_; }
  pid_t pid() const { return pid_; }
  State state() const { return state_; }
  int socket() const { return socket_.get(); }  // readable: call read_news()
  void read_news();
  // False: the server has died. Its answer is the run's "PID\n", "fresh\n" if the job must run in a fresh Python, or nothing if it dies.
  bool send(const ForkRequest& request);

 private:
  ServerKey key_;
  SessionFolder session_;
  Fd socket_, log_;
  pid_t pid_ = -1;
  State state_ = State::starting;
};

}  // namespace gpucast::run
