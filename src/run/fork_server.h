// The batch's side of python/gpucast/fork_server.py: which jobs it can take, and handing one over.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/run/child_process.h"
#include "src/run/session_folder.h"

namespace gpucast::run {

// A command that is a Python with a script, a module or code. Its flags are those that a fork server can be started with as well.
struct PythonCommand {
  std::vector<std::string> flags;
  std::string kind;     // script, module, code
  std::string subject;  // the script's path, the module's name, the code
  std::vector<std::string> arguments;
};
std::optional<PythonCommand> parse_python_command(const std::vector<std::string>& command);

// All that a fresh Python's `import torch` may depend on. Jobs with the same one can share a server.
struct ServerKey {
  std::string program;  // path
  std::string name;     // argv[0]
  std::vector<std::string> flags;
  std::vector<std::string> environment;  // sorted, less what names the shell's place
  std::string folder;                    // where PYTHONPATH depends on it; else ""
  bool operator==(const ServerKey&) const = default;
};

struct ForkableJob {
  PythonCommand python;
  ServerKey key;
};
// Nothing: it must run in a process of its own. `environment`: the job's, "NAME=value".
std::optional<ForkableJob> forkable(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                                    const std::string& folder);

struct ForkRequest {
  std::vector<std::string> run_words;  // gpucast run ... -- COMMAND
  size_t options_end = 0;              // where "--" is in it
  std::vector<std::string> command, environment;
  std::string folder;
  PythonCommand python;
  int result = -1, log = -1, answer = -1;  // descriptors: standard output of the run, its standard error, where the server answers
};

class ForkServer {
 public:
  enum class State { starting, ready, unusable };

  // Starts it. `folder`: where, in case the key depends on it.
  ForkServer(ServerKey key, const std::vector<std::string>& environment, const std::string& folder, const std::string& library_folder);
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  const ServerKey& key() const { return key_; }
  pid_t pid() const { return pid_; }
  State state() const { return state_; }
  int socket() const { return socket_.get(); }  // readable: call read_news()
  void read_news();
  // False: it has died. The answer is "PID\n" of the run, "fresh\n" where the job must have a process of its own, or nothing when it dies.
  bool send(const ForkRequest& request);

 private:
  ServerKey key_;
  SessionFolder session_;
  Fd socket_, log_;
  pid_t pid_ = -1;
  State state_ = State::starting;
};

}  // namespace gpucast::run
