#include "src/vgpu/libs/cudnn_ask.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "src/vgpu/libs/call.h"

extern char** environ;

namespace gpucast::vgpu::cudnn {
namespace {

constexpr double kTimeout_s = 60;  // the first start reads hundreds of MB of libraries
constexpr size_t kMostLine = 1 << 20;
constexpr off_t kMostFile = 64 << 20;

// In the form of cuDNN's own cudnn_frontend (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). The values that the profile does not have are the
// same on all cards from compute capability 6.0 on.
std::string device_json() {
  const DeviceProfile& p = profile();
  const auto field = [](const char* name, int64_t value) { return "\"" + std::string(name) + "\":" + std::to_string(value) + ","; };
  std::string name;
  for (const char* c = p.name; *c; ++c) {
    if (*c != '"' && *c != '\\' && static_cast<unsigned char>(*c) >= 0x20) name += *c;
  }
  return "{" + field("deviceVer", p.compute_major * 100 + p.compute_minor * 10) + field("multiProcessorCount", p.multiprocessors) +
         field("warpSize", 32) + field("maxSharedMemoryPerBlock", p.shared_memory_per_block_bytes) +
         field("maxSharedMemoryPerBlockOptin", p.shared_memory_per_block_optin_bytes) + field("oversizedSharedMemoryPerBlock", 0) +
         field("reservedSharedMemoryPerBlock", p.compute_major >= 8 ? 1024 : 0) +
         field("maxRegistersPerSM", p.registers_per_multiprocessor) + field("maxCtasPerSM", p.max_blocks_per_multiprocessor) +
         field("maxThreadsPerBlock", 1024) + field("maxThreadsPerSM", p.max_threads_per_multiprocessor) + field("regsPerBlock", 65536) +
         field("totalGlobalMem", static_cast<int64_t>(p.total_memory_bytes)) + field("smClockRateKHz", p.clock_khz) +
         field("l2CacheSize", static_cast<int64_t>(p.l2_bytes)) + "\"maxBlockSize\":[1024,1024,64]," +
         field("memClockRateKHz", p.memory_clock_khz) + "\"maxGridSize\":[2147483647,65535,65535]," + field("supportCoopLaunch", 1) +
         field("pciDeviceId", 0) + field("isTccDriver", 0) + field("cudaDeviceId", 0) + field("driverVer", p.driver_version) +
         "\"deviceName\":\"" + name + "\"}";
}

// The folder vgpu/, which contains the helper; this library is in vgpu/cudaN/.
std::string library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&library_folder), &info) == 0 || info.dli_fname == nullptr) return ".";
  std::string path = info.dli_fname;
  for (int i = 0; i < 2; ++i) path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  return path.empty() ? "." : path;
}

// The time limit of the helper's start and of each answer.
int timeout_ms() {
  const char* given = std::getenv("GPUCAST_CUDNN_TIMEOUT_S");
  const double seconds = given == nullptr ? 0 : std::atof(given);
  return static_cast<int>(1000 * (seconds > 0 && seconds < 1e6 ? seconds : kTimeout_s));
}

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// The helper's environment, without variables that would load other libraries into it or make it print.
std::vector<char*> helper_environment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const bool left_out = text.starts_with("LD_") || text.starts_with("GPUCAST_") || text.starts_with("CUDNN_");
    if (!left_out) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

class Helper {
 public:
  // Returns "" once it is ready, or else the reason why it is not.
  std::string start() {
    const std::string folder = library_folder(), helper = folder + "/cudnn_helper", device = device_json();
    std::vector<std::string> words = {helper, profile().cudnn_library, device};
    for (const char* cublas : {"/cuda12/vgpu_cublasLt.so", "/cuda13/vgpu_cublasLt.so"}) {
      if (exists(folder + cublas)) words.push_back(folder + cublas);
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    int to_helper[2], from_helper[2];
    if (pipe2(to_helper, O_CLOEXEC) != 0) return std::strerror(errno);
    if (pipe2(from_helper, O_CLOEXEC) != 0) {
      close(to_helper[0]), close(to_helper[1]);
      return std::strerror(errno);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_helper[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from_helper[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t starter = 0;
    const int error = posix_spawn(&starter, helper.c_str(), &actions, &attributes, arguments.data(), helper_environment().data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(to_helper[0]);
    close(from_helper[1]);
    write_ = to_helper[1];
    read_ = from_helper[0];
    if (error != 0) return end(std::strerror(error));
    while (waitpid(starter, nullptr, 0) < 0 && errno == EINTR) {
    }
    std::string line;
    if (!read_line(&line)) return end("the helper did not start");
    if (std::sscanf(line.c_str(), "started %d", &pid_) != 1) return end(line);
    if (!read_line(&line)) return end(what_happened("while cuDNN was loaded"));
    if (!line.starts_with("ready ")) return end(line.starts_with("failed ") ? line.substr(7) : line);
    return "";
  }

  bool running() const { return read_ >= 0; }

  // False: the helper is gone, and `reply` gives the reason.
  bool ask(const std::string& question, std::string* reply) {
    const std::string line = question + "\n";
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t part = write_whole(line.data() + sent, line.size() - sent);
      if (part < 0) {
        *reply = end("it ended");
        return false;
      }
      sent += static_cast<size_t>(part);
    }
    if (read_line(reply)) return true;
    *reply = end(what_happened("while it looked for engines"));
    return false;
  }

 private:
  // Without a SIGPIPE to the script's process.
  ssize_t write_whole(const char* data, size_t size) const {
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    ssize_t part = 0;
    while ((part = write(write_, data, size)) < 0 && errno == EINTR) {
    }
    if (part < 0 && errno == EPIPE) {
      const timespec at_once{};
      sigtimedwait(&pipe, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return part;
  }

  bool read_line(std::string* line) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms());
    timed_out_ = false;
    while (true) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        *line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return true;
      }
      if (buffer_.size() > kMostLine) return false;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      pollfd entry{read_, POLLIN, 0};
      const int ready = left <= 0 ? 0 : poll(&entry, 1, static_cast<int>(left));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) {
        timed_out_ = ready == 0;
        return false;
      }
      char part[4096];
      const ssize_t got = read(read_, part, sizeof part);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      buffer_.append(part, static_cast<size_t>(got));
    }
  }

  std::string what_happened(const char* when) const { return std::string(timed_out_ ? "it hung " : "it crashed ") + when; }

  // Ends the helper, with a signal if necessary. Returns `why`.
  std::string end(std::string why) {
    if (pid_ > 0) kill(pid_, SIGKILL);
    close(write_);
    close(read_);
    write_ = read_ = -1;
    return why;
  }

  int write_ = -1, read_ = -1, pid_ = 0;
  bool timed_out_ = false;
  std::string buffer_;
};

struct Asker {
  std::mutex mutex;
  std::unordered_map<std::string, std::string> answers;
  Helper helper;
  bool loaded = false, failed = false;

  void load_answers() {
    loaded = true;
    const int fd = open(profile().cudnn_answers, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status {};
    std::string text;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= kMostFile) {
      text.resize(static_cast<size_t>(status.st_size));
      const ssize_t got = read(fd, text.data(), text.size());
      text.resize(static_cast<size_t>(got < 0 ? 0 : got));
    }
    close(fd);
    for (std::string_view rest = text; !rest.empty();) {
      std::string_view question, answer;
      if (parse_answer_line(detail::take_until(&rest, '\n'), &question, &answer)) answers.emplace(question, answer);
    }
  }

  // Several processes may write at once, so whole lines are appended. Without a file, the next process asks again.
  static void keep(const std::string& question, const std::string& answer) {
    if (profile().cudnn_answers[0] == '\0') return;
    const int fd = open(profile().cudnn_answers, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return;
    const std::string line = answer_line(question, answer);
    (void)!write(fd, line.data(), line.size());
    close(fd);
  }

  void fail(const std::string& why) {
    failed = true;
    log_warning("cudnn_not_asked", ("cuDNN could not be asked for its workspaces: " + why).c_str());
  }

  std::optional<std::vector<EngineAnswer>> ask(const std::string& question) {
    if (!loaded) load_answers();
    const auto known = answers.find(question);
    if (known != answers.end()) return parse_answer(known->second);
    if (failed) return std::nullopt;
    if (!helper.running()) {
      if (const std::string why = helper.start(); !why.empty()) {
        fail(why);
        return std::nullopt;
      }
    }
    std::string reply;
    if (!helper.ask(question, &reply)) {
      fail(reply);
      return std::nullopt;
    }
    answers.emplace(question, reply);
    std::optional<std::vector<EngineAnswer>> parsed = parse_answer(reply);
    if (parsed) keep(question, reply);  // a failure may not happen again
    return parsed;
  }
};

Asker& asker() {
  static Asker* const kAsker = new Asker;  // never destroyed: PyTorch may call until the very end
  return *kAsker;
}

}  // namespace

bool may_ask() { return profile().cudnn_library[0] != '\0'; }

std::optional<std::vector<EngineAnswer>> ask(const std::string& question) {
  Asker& the = asker();
  const std::lock_guard lock(the.mutex);
  return the.ask(question);
}

}  // namespace gpucast::vgpu::cudnn
