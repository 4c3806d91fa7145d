#include "src/run/clock_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "gpucast/error.h"
#include "src/base/read_file.h"
#include "src/base/say.h"
#include "src/run/child_process.h"
#include "src/run/clean_up_when_killed.h"
#include "src/run/processes.h"
#include "src/run/program_path.h"
#include "src/run/run_session.h"
#include "src/run/session_folder.h"
#include "src/schedule/launch_times.h"
#include "src/time/duration.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

// Answers questions of the virtual GPU (src/vgpu/core/clock_work.cc) in all processes of the command. A question and an answer are a line
// each.
class ClockServer {
 public:
  ClockServer(const std::string& path, LaunchTimes* times) : times_(times) {
    listener_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
      throw Error("the path of the temporary folder is too long for a socket", path, "set TMPDIR to a shorter one");
    std::memcpy(address.sun_path, path.c_str(), path.size());
    if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener_.get(), 64) != 0)
      throw Error(fmt::format("cannot make a socket: {}", std::strerror(errno)), path, "set TMPDIR to a folder of this machine");
  }

  void watch(std::vector<pollfd>* polled) const {
    polled->push_back({listener_.get(), POLLIN, 0});
    for (const auto& [fd, client] : clients_) polled->push_back({fd, POLLIN, 0});
  }

  void serve(const std::vector<pollfd>& polled) {
    for (const pollfd& entry : polled) {
      if (entry.revents == 0) continue;
      if (entry.fd == listener_.get()) {
        Fd accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (accepted) {
          const int fd = accepted.get();
          clients_[fd].connection = std::move(accepted);
        }
      } else if (clients_.contains(entry.fd) && !answer(&clients_[entry.fd])) {
        clients_.erase(entry.fd);
      }
    }
  }

 private:
  struct Client {
    Fd connection;
    std::string unread;
  };
  static constexpr size_t kLongestQuestion = 1 << 24;

  // False: the process has closed its connection.
  bool answer(Client* client) {
    char bytes[65536];
    const ssize_t count = recv(client->connection.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
    client->unread.append(bytes, static_cast<size_t>(count));
    std::string answers;
    size_t begin = 0;
    for (size_t end = client->unread.find('\n'); end != std::string::npos; end = client->unread.find('\n', begin)) {
      answers += reply(std::string_view(client->unread).substr(begin, end - begin));
      begin = end + 1;
    }
    client->unread.erase(0, begin);
    for (size_t sent = 0; sent < answers.size();) {
      const ssize_t now = send(client->connection.get(), answers.data() + sent, answers.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) return now < 0 && errno == EINTR;
      sent += static_cast<size_t>(now);
    }
    return client->unread.size() < kLongestQuestion;
  }

  std::string reply(std::string_view question) {
    if (question.starts_with("nccl ")) {
      const auto [duration_ns, share, meets_all] = times_->communication(question);
      return fmt::format("{:.3f} {:.6f} {:.6f} {:.6f} {} {:d}\n", duration_ns, share.multiprocessors, share.moving, share.memory,
                         share.buffered_bytes, meets_all);
    }
    const auto work = times_->answer(question);
    if (!work) return "none\n";
    return fmt::format("{:.3f} {} {:.6f} {:.3f} {:d} {:d}\n", work->duration_ns, static_cast<int>(work->engine), work->demand,
                       work->cold_ns, work->sweeps_l2, work->limited_by_memory);
  }

  LaunchTimes* times_;
  Fd listener_;
  std::map<int, Client> clients_;
};

// Of the first process that wrote one; "": none did.
std::string record_in(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".whole_run") found.push_back(entry.path());
  if (found.empty()) return "";
  const auto first = std::min_element(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return fs::last_write_time(a, error) < fs::last_write_time(b, error);
  });
  return read_file(first->string());
}

void kill_descendants() {
  for (int tries = 0; tries < 100; ++tries) {
    const auto alive = descendants();
    for (const pid_t pid : alive) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    if (alive.empty()) return;
    usleep(2000);
  }
}

}  // namespace

ClockedRun run_with_clock(const RunSettings& settings, bool warp, const std::string& constants_json) {
  const std::string program_path = find_program(settings.command.front());
  const std::string libraries = library_folder();
  const CardRates rates = card_rates(settings.gpu, constants_json);
  LaunchTimes times(rates);
  if (!settings.whole_run)
    say("gpucast: the script on {} {}\n", settings.gpu.name, warp ? "(warp: its clocks are the card's)" : "(in real time)");

  const SessionFolder session;
  const CleanUpWhenKilled clean_up(session.path, session.path + "/none");
  RunSettings clocked = settings;
  clocked.mode = "clock";
  clocked.clock_socket = session.path + "/clock.socket";
  clocked.clock = warp ? 2 : 1;
  clocked.clock_event_ns = rates.event_ns;
  clocked.clock_host = read_step_constants(constants_json);
  clocked.cudnn = "off";
  write_session(session.path, libraries, clocked);
  ClockServer server(clocked.clock_socket, &times);

  // Ctrl-C reaches the command too, and the command decides how it ends.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const Fd arrived(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Program program;
  program.path = program_path;
  program.words = settings.command;
  program.environment = session_environment(libraries, session.path);
  program.folder = ".";
  program.input = STDIN_FILENO;
  program.output = settings.whole_run ? STDERR_FILENO : STDOUT_FILENO;
  program.errors = STDERR_FILENO;
  const pid_t child = start_process(program);
  int exit_code = kExitFailed;
  for (bool running = true; running;) {
    std::vector<pollfd> polled{{arrived.get(), POLLIN, 0}};
    server.watch(&polled);
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) break;
    signalfd_siginfo signal{};
    while (read(arrived.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
      if (signal.ssi_signo == SIGTERM || signal.ssi_signo == SIGHUP) kill(child, static_cast<int>(signal.ssi_signo));
    }
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != child) continue;
      exit_code = shell_exit_code(status);
      running = false;
    }
    polled.erase(polled.begin());
    server.serve(polled);
  }
  kill_descendants();
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (times.unknown_questions() > 0)
    say("gpucast: {} of {} kinds of work are not known: they are timed by their threads, or as elementwise operators\n",
        times.unknown_questions(), times.questions());
  return {exit_code, settings.whole_run ? record_in(session.path) : ""};
}

}  // namespace gpucast::run
