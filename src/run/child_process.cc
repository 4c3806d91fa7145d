#include "src/run/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "gpucast/error.h"

namespace gpucast::run {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// Calls only functions that are allowed between fork and exec. Returns errno.
int become(const Program& program, char* const* words, char* const* environment, pid_t parent) {
  if (program.death_signal != 0) prctl(PR_SET_PDEATHSIG, program.death_signal);
  if (getppid() != parent) _exit(127);
  std::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir(program.folder.c_str()) != 0) return errno;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return errno;
  const int streams[] = {program.input, program.output, program.errors};
  for (int stream = 0; stream < 3; ++stream) {
    if (dup2(streams[stream] < 0 ? null : streams[stream], stream) < 0) return errno;
  }
  if (program.inherited >= 0 && fcntl(program.inherited, F_SETFD, 0) != 0) return errno;
  execve(program.path.c_str(), words, environment);
  return errno;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Fd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

pid_t start_process(const Program& program) {
  const auto words = pointers(program.words), environment = pointers(program.environment);
  Pipe failure = make_pipe();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)), program.path);
  if (child == 0) {
    const int error = become(program, words.data(), environment.data(), parent);
    (void)!write(failure.writer.get(), &error, sizeof error);
    _exit(127);
  }
  failure.writer.reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = read(failure.reader.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    waitpid(child, nullptr, 0);
    throw Error(fmt::format("cannot start '{}' in '{}': {}", program.path, program.folder, std::strerror(error)));
  }
  return child;
}

int run_self(Program program) {
  program.path = "/proc/self/exe";
  const pid_t pid = start_process(program);
  const auto previous = std::signal(SIGINT, SIG_IGN);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  std::signal(SIGINT, previous);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
}

Fd nameless_file() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) folder = "/tmp";
  Fd file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file) return file;
  std::string path = (folder / "gpucast-XXXXXX.log").string();  // a file system without nameless files
  file = Fd(mkostemps(path.data(), static_cast<int>(std::strlen(".log")), O_CLOEXEC));
  if (!file)
    throw Error(fmt::format("cannot make a temporary file: {}", std::strerror(errno)), folder.string(),
                "set TMPDIR to a folder that can be written");
  unlink(path.c_str());
  return file;
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace gpucast::run
