// Starting a program as a child, with its own standard streams.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace gpucast::run {

// A file descriptor that is closed with its owner. -1: none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

struct Program {
  std::string path;
  std::vector<std::string> words;        // argv
  std::vector<std::string> environment;  // "NAME=value"
  std::string folder;
  int input = -1, output = -1, errors = -1;  // its standard streams; -1: /dev/null
  int inherited = -1;                        // one more that stays open, under the same number
  int death_signal = 0;                      // sent to it when we die; 0: none
};

// In the child, signals that we block or handle have the state that they had when gpucast started. Throws Error when the child cannot be
// started.
pid_t start_process(const Program& program);

// Runs gpucast itself (program.path is ignored) and waits for it. Ctrl-C reaches the child too: the child cleans up and exits with
// kExitInterrupted. Returns the exit code; kExitFailed if a signal ended the child. Throws Error when it cannot be started.
int run_self(Program program);

// A nameless file in the system's temporary folder.
Fd nameless_file();

struct Pipe {
  Fd reader, writer;
};
Pipe make_pipe();

}  // namespace gpucast::run
