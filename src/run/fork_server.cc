#include "src/run/fork_server.h"

#include <fmt/core.h>
#include <linux/memfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/run/child_process.h"
#include "src/run/program_path.h"
#include "src/run/run_session.h"
#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

// Variables that describe the shell's own state. Python and PyTorch do not read them when they start.
constexpr const char* kPlaceOfShell[] = {"PWD", "OLDPWD", "SHLVL", "_"};

bool is_python(const std::string& program) {
  const std::string name = fs::path(program).filename().string();
  return name.starts_with("python") && name.find_first_not_of("0123456789.", std::strlen("python")) == std::string::npos;
}

// Launchers start other Pythons, so a fork server saves no time.
bool is_launcher(const std::string& module) { return module.starts_with("torch.") || module.starts_with("accelerate"); }

// A Python source file; not a folder or archive with a __main__.py, nor compiled code.
bool is_source(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  char begin[2] = {};
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  in.read(begin, sizeof begin);
  return std::string(begin, 2) != "PK" && !path.ends_with(".pyc") && !path.ends_with(".pyz");
}

std::string value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& entry : environment) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return "";
}

bool has_relative_entry(const std::string& path_variable) {
  std::istringstream entries(path_variable);
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (!entry.starts_with('/')) return true;
  }
  return !path_variable.empty() && path_variable.back() == ':';
}

// The server's. A script's own variables come through its pipe, so it does not see this one. OpenMP reads it when its library is loaded.
std::vector<std::string> with_sleeping_threads(std::vector<std::string> environment) {
  constexpr std::string_view kSleep = "OMP_WAIT_POLICY", kSpins = "GOMP_SPINCOUNT", kIntel = "KMP_BLOCKTIME";
  for (const std::string& entry : environment) {
    const std::string_view name = std::string_view(entry).substr(0, entry.find('='));
    if (name == kSleep || name == kSpins || name == kIntel) return environment;  // the user has chosen
  }
  environment.push_back(fmt::format("{}=PASSIVE", kSleep));
  return environment;
}

void add_item(std::string* data, char kind, const std::string& value) {
  data->push_back(kind);
  data->append(value).push_back('\0');
}

std::string encode(const ForkRequest& request) {
  std::string data;
  for (const auto& word : request.run_words) add_item(&data, 'R', word);
  add_item(&data, 'O', std::to_string(request.options_end));
  for (const auto& entry : request.environment) add_item(&data, 'E', entry);
  add_item(&data, 'F', request.folder);
  add_item(&data, 'K', request.python.kind);
  add_item(&data, 'S', request.python.subject);
  for (const auto& word : request.command) add_item(&data, 'W', word);
  for (const auto& word : request.python.arguments) add_item(&data, 'A', word);
  return data;
}

Fd memory_file(const std::string& data) {
  Fd file(static_cast<int>(syscall(SYS_memfd_create, "gpucast-job", MFD_CLOEXEC)));  // glibc has a name for it since 2.27
  if (!file) throw Error(fmt::format("cannot make a memory file: {}", std::strerror(errno)));
  for (size_t sent = 0; sent < data.size();) {
    const ssize_t part = write(file.get(), data.data() + sent, data.size() - sent);
    if (part < 0) throw Error(fmt::format("cannot write to a memory file: {}", std::strerror(errno)));
    sent += static_cast<size_t>(part);
  }
  return file;
}

}  // namespace

std::optional<PythonCommand> parse_python_command(const std::vector<std::string>& command) {
  if (command.empty() || !is_python(command[0])) return std::nullopt;
  PythonCommand python;
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    const auto set_arguments_from = [&](size_t from) {
      python.arguments.assign(command.begin() + static_cast<int64_t>(from), command.end());
    };
    if (word == "-" || word == "--" || word.starts_with("--")) return std::nullopt;
    if (word[0] != '-') {
      python.kind = "script";
      python.subject = word;
      set_arguments_from(i + 1);
      return python;
    }
    for (size_t k = 1; k < word.size(); ++k) {
      const char flag = word[k];
      if (flag == 'c' || flag == 'm' || flag == 'W' || flag == 'X') {  // the value is the rest of this word, or the next word
        const bool attached = k + 1 < word.size();
        if (!attached && i + 1 >= command.size()) return std::nullopt;
        const std::string value = attached ? word.substr(k + 1) : command[i + 1];
        if (flag == 'W' || flag == 'X') {
          python.flags.push_back(fmt::format("-{}{}", flag, value));
          i += attached ? 0 : 1;
          break;
        }
        python.kind = flag == 'c' ? "code" : "module";
        python.subject = value;
        set_arguments_from(attached ? i + 1 : i + 2);
        return python.kind == "module" && is_launcher(value) ? std::nullopt : std::optional(python);
      }
      // Excluded are -I, -E and -S, which leave our hooks out; -i, -v and -x; and flags that only print something.
      if (std::string("bBOqsuP").find(flag) == std::string::npos) return std::nullopt;
      python.flags.push_back(fmt::format("-{}", flag));
    }
  }
  return std::nullopt;  // Python would read its program from standard input
}

std::optional<ForkableJob> forkable(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                                    const std::string& folder) {
  auto python = parse_python_command(command);
  if (!python) return std::nullopt;
  if (python->kind == "script" && !is_source((fs::path(folder) / python->subject).string())) return std::nullopt;
  const auto program = resolve_program(command[0], value_of(environment, "PATH"), folder);
  if (!program) return std::nullopt;
  ServerKey key{*program, command[0], python->flags, {}, "", false};
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (std::find(std::begin(kPlaceOfShell), std::end(kPlaceOfShell), name) == std::end(kPlaceOfShell)) key.environment.push_back(entry);
  }
  std::sort(key.environment.begin(), key.environment.end());
  if (has_relative_entry(value_of(environment, "PYTHONPATH"))) key.folder = folder;
  return ForkableJob{std::move(*python), std::move(key)};
}

ForkServer::ForkServer(ServerKey key, const std::vector<std::string>& environment, const std::string& folder,
                       const std::string& library_folder)
    : key_(std::move(key)), log_(nameless_file()) {
  RunSettings settings;
  settings.mode = "fork_server";
  settings.gpu = find_gpu(kDefaultGpu);
  write_session(session_.path, library_folder, settings);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  socket_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  Program program;
  program.path = key_.program;
  program.words = {key_.name};
  program.words.insert(program.words.end(), key_.flags.begin(), key_.flags.end());
  // The real path: the capture layer recognizes its own frames by it.
  program.words.push_back(fs::canonical(library_folder + "/python/gpucast/fork_server.py").string());
  program.words.push_back(std::to_string(theirs.get()));
  program.environment =
      session_environment(library_folder, session_.path, key_.shares_cores ? with_sleeping_threads(environment) : environment);
  program.folder = folder;
  program.output = program.errors = log_.get();
  program.inherited = theirs.get();
  pid_ = start_process(program);
}

// Kills the server; jobs do not depend on it. It would also end after its socket is closed, but that takes longer.
ForkServer::~ForkServer() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void ForkServer::read_news() {
  std::array<char, 512> text{};
  const ssize_t size = recv(socket_.get(), text.data(), text.size() - 1, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  state_ = size > 0 && std::string(text.data()) == "ready" ? State::ready : State::unusable;
  if (state_ == State::unusable && std::getenv("GPUCAST_DEBUG")) fmt::print(stderr, "gpucast: no fork server: {}\n", text.data());
}

bool ForkServer::send(const ForkRequest& request) {
  const Fd job = memory_file(encode(request));
  const std::array<int, 4> fds{job.get(), request.result, request.log, request.answer};
  char text[] = "job";
  iovec part{text, sizeof text};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof fds);
  ssize_t sent = 0;
  while ((sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (sent < 0) state_ = State::unusable;
  return sent >= 0;
}

}  // namespace gpucast::run
