#include "src/run/capture_file.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "gpucast/error.h"
#include "gpucast/ledger.h"
#include "src/base/command_words.h"
#include "src/base/gpu_json.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/run/run_session.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"
#include "version.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

constexpr int kSchemaVersion = 1;

Json gpu_json(const Gpu& gpu) {
  Json row;
  row["id"] = gpu.id;
  row["name"] = gpu.name;
  row["architecture"] = gpu.architecture;
  row["compute_major"] = gpu.compute_major;
  row["compute_minor"] = gpu.compute_minor;
  add_gpu_figures(gpu, &row);
  return row;
}

int cuda_major_of(const std::string& session_folder, pid_t pid) {
  return std::atoi(Json::parse(read_file(fmt::format("{}/{}.torch", session_folder, pid))).value("cuda", "").c_str());
}

class GzipWriter {
 public:
  explicit GzipWriter(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "wb6")) {
    if (!file_) fail();
    gzbuffer(file_, 1 << 18);
  }
  ~GzipWriter() {
    if (file_) gzclose(file_);
  }
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  void line(const std::string& text) { write((text + "\n").data(), text.size() + 1); }

  // The whole lines of a file; false when there is no such file.
  bool lines_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return false;
    std::vector<char> buffer(1 << 20);
    char last = '\n';
    while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0) {
      write(buffer.data(), static_cast<size_t>(in.gcount()));
      last = buffer[static_cast<size_t>(in.gcount()) - 1];
    }
    if (last != '\n') write("\n", 1);
    return true;
  }

  int64_t lines() const { return lines_; }

  void close() {
    const int status = gzclose(file_);
    file_ = nullptr;
    if (status != Z_OK) fail();
  }

 private:
  void write(const char* data, size_t size) {
    lines_ += std::count(data, data + size, '\n');
    if (gzwrite(file_, data, static_cast<unsigned>(size)) != static_cast<int>(size)) fail();
  }
  [[noreturn]] void fail() const {
    throw Error(fmt::format("cannot write the capture: {}", std::strerror(errno)), path_, "free some space");
  }

  std::string path_;
  gzFile file_;
  int64_t lines_ = 0;
};

// "train.gpucast", "rank1" -> "train.rank1.gpucast".
std::string with_part(const std::string& path, const std::string& part) {
  fs::path result(path);
  const std::string extension = result.extension().string();
  result.replace_extension();
  return fmt::format("{}.{}{}", result.string(), part, extension);
}

}  // namespace

bool write_partial_history(const std::string& session_folder, const CapturedProcess& process, const std::string& how) {
  const std::string base = fmt::format("{}/{}.", session_folder, process.pid);
  // src/vgpu/core/memory_log.cc writes the same format.
  std::ifstream in(base + "memory", std::ios::binary);
  std::array<int64_t, 2> counts{};
  if (!in.read(reinterpret_cast<char*>(counts.data()), sizeof counts) || counts[0] <= 0) return false;
  std::ifstream torch_file(base + "torch"), armed_file(base + "armed");
  const Json torch = Json::parse(std::string(std::istreambuf_iterator<char>(torch_file), {}));
  const Json armed = Json::parse(std::string(std::istreambuf_iterator<char>(armed_file), {}));
  std::string history = Json{{"record", "process"},
                             {"pid", process.pid},
                             {"rank", process.rank},
                             {"world_size", armed.value("world_size", 1)},
                             {"torch", torch.value("version", "")},
                             {"cuda", torch.value("cuda", "")}}
                            .dump() +
                        "\n";
  std::array<int64_t, 2> change{};
  for (int64_t i = 0; i < counts[0] && in.read(reinterpret_cast<char*>(change.data()), sizeof change); ++i) {
    const auto [address, bytes] = change;
    history += fmt::format("[\"{}\", {}, {}, 0, -1, 0]\n", bytes > 0 ? "segment_alloc" : "segment_free", address, std::abs(bytes));
  }
  history += Json{{"record", "end"}, {"reason", "killed"}, {"how", how}}.dump() + "\n";
  write_session_file(base + "history", history);
  write_session_file(base + "vgpu", "");
  return true;
}

CaptureFile::CaptureFile(const std::string& path, bool force, const char* example) : wanted_(path), force_(force) {
  std::error_code error;
  fs::path temporary;
  if (path.empty()) {
    temporary = fs::temp_directory_path(error);
    if (error) temporary = "/tmp";
    temporary /= "gpucast-XXXXXX.gpucast";
  } else {
    const fs::path target(path);
    const auto status = fs::status(target, error);
    const std::string hint = std::string("name a file: -o ") + example;
    if (fs::is_directory(status)) throw Error("the output is a folder", path, hint);
    if (fs::exists(status) && !fs::is_regular_file(status)) throw Error("the output is no ordinary file", path, hint);
    if (fs::exists(status) && !force) throw Error("the output file exists", path, "choose another name, or overwrite it with --force");
    const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
    if (!fs::is_directory(folder, error))
      throw Error("the output's folder does not exist", folder.string(), fmt::format("mkdir -p {}", folder.string()));
    temporary = folder / ("." + target.filename().string() + ".XXXXXX.gpucast");
  }
  current_ = temporary.string();
  const int fd = mkstemps(current_.data(), static_cast<int>(std::strlen(".gpucast")));
  if (fd < 0)
    throw Error(fmt::format("the output cannot be written: {}", std::strerror(errno)), path.empty() ? current_ : path,
                "choose another folder");
  if (!path.empty()) {  // permissions of an ordinary new file, not mkstemp's private ones
    const mode_t mask = umask(0);
    umask(mask);
    (void)fchmod(fd, 0666 & ~mask);
  }
  close(fd);
}

CaptureFile::~CaptureFile() {
  if (!kept_) unlink(current_.c_str());
}

void CaptureFile::assemble(const std::string& session_folder, const CapturedProcess& process, const RunSettings& settings,
                           const CommandEnd& end) {
  GzipWriter out(current_);
  Json header;
  header["record"] = "header";
  header["schema_version"] = kSchemaVersion;
  header["gpucast_version"] = kGpucastVersion;
  header["source"] = "vgpu";
  header["gpu"] = gpu_json(settings.gpu);
  header["gpu_chosen"] = settings.gpu_chosen;
  header["enforce_capacity"] = settings.enforce_capacity;
  header["capacity_bytes"] = usable_capacity_bytes(settings.gpu, cuda_major_of(session_folder, process.pid));
  header["steps_requested"] = std::max<int64_t>(settings.steps, 0);
  if (settings.steps <= 0) header["steps_rule"] = settings.steps == kStepsAuto ? "auto" : kUntilEnd;
  header["command"] = command_json(settings.typed.empty() ? settings.command : settings.typed);
  if (settings.gpus > 1) header["gpus"] = settings.gpus;
  if (settings.world_size > 0) {
    header["world_size"] = settings.world_size;
    header["ranks"] = settings.ranks;
  }
  std::error_code error;
  header["run_s"] = std::round(settings.run_s * 10) / 10;
  header["folder"] = fs::current_path(error).string();
  if (!settings.what_if.empty()) {
    header["what_if"] = Json::array();
    for (const WhatIf& what_if : settings.what_if) {
      header["what_if"].push_back(what_if.acted ? Json{{"name", what_if.name}, {"count", 1}, {"did", what_if.did}}
                                                : Json{{"name", what_if.name}});
    }
  }
  out.line(header.dump());
  const std::string part = process.device == process.devices.front() ? "" : fmt::format("device{}.", process.device);
  const std::string base = fmt::format("{}/{}.{}", session_folder, process.pid, part);
  if (!out.lines_of(base + "history")) throw Error("the captured process left no history", base + "history");
  Json command_end{{"record", "command_end"}, {"exit_code", end.exit_code}};
  for (const FailedRank& failed : end.failed_ranks) command_end["failed_ranks"].push_back({{"rank", failed.rank}, {"what", failed.what}});
  out.line(command_end.dump());
  if (!out.lines_of(base + "vgpu")) {
    out.line(
        Json{{"record", "warning"}, {"code", "no_vgpu_log"}, {"message", "the virtual GPU's log is missing: what libraries did is unknown"}}
            .dump());
  }
  out.line(Json{{"record", "eof"}, {"lines", out.lines()}}.dump());
  out.close();
}

std::string CaptureFile::keep() {
  kept_ = true;
  if (wanted_.empty()) return current_;
  std::error_code error;
  if (!force_ && fs::exists(wanted_, error)) {
    throw Error("the output file has appeared while the command ran", wanted_, fmt::format("the capture is in {}", current_));
  }
  fs::rename(current_, wanted_, error);
  if (error)
    throw Error(fmt::format("cannot move the capture to its place: {}", error.message()), wanted_, fmt::format("it is in {}", current_));
  current_ = wanted_;
  return current_;
}

std::string rank_path(const std::string& path, int64_t rank) { return rank == 0 ? path : with_part(path, fmt::format("rank{}", rank)); }

std::vector<std::string> capture_paths(const std::string& path, const std::vector<CapturedProcess>& captured) {
  std::vector<std::string> paths;
  for (const CapturedProcess& process : captured) {
    std::string own = rank_path(path, process.rank);
    if (process.device != process.devices.front()) own = with_part(own, fmt::format("device{}", process.device));
    // Two processes may both report rank 0.
    const auto number = static_cast<int64_t>(paths.size());
    if (std::find(paths.begin(), paths.end(), own) != paths.end()) own = rank_path(path, number);
    paths.push_back(own);
  }
  return paths;
}

}  // namespace gpucast::run
