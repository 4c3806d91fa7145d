// `gpucast profile`: runs a command on the CPU under PyTorch's profiler, and writes its trace.

#include <fmt/core.h>
#include <zlib.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/base/command_words.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/base/say.h"
#include "src/cli/subcommand.h"
#include "src/run/capture_file.h"
#include "src/run/failures.h"
#include "src/run/processes.h"
#include "src/run/program_path.h"
#include "src/run/run_session.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"
#include "version.h"

namespace gpucast::cli {
namespace {

constexpr char kHintGpu[] = "rtx3060";

struct ProfileCommand {
  std::string gpu, output = "trace.json";
  int64_t steps = 3;
  double timeout_s = 0;
  bool force = false;
  std::vector<std::string> command;
};

// Why no trace was written, with all details that the session's files give.
Error explain_nothing(const run::Supervised& run, const ProfileCommand& options) {
  const Json error = Json::parse(run.error_json);
  const std::string code = error.value("code", ""), python = error.value("python", "");
  const bool failed = run.exit_code.value_or(0) != 0;
  const std::string above = "what it printed is above";
  if (code == "cannot_write" || code == "cannot_profile")
    return Error(error.value("message", ""), python,
                 code == "cannot_write" ? "is there space in the temporary folder? Set TMPDIR to another" : "");
  if (!run.processes.empty())
    return Error(fmt::format("the script died{} before its trace was written", run::how_it_ended(run)), "", above);
  if (run.end == run::Supervised::End::timed_out)
    return Error(fmt::format("nothing was profiled within {} s", options.timeout_s), "", "give it more time: --timeout SECONDS");
  if (const auto no_torch = run::explain_no_torch(run, "profile")) return *no_torch;
  if (failed) return Error(fmt::format("the command failed{} before a module ran", run::how_it_ended(run)), "", above);
  return Error("nothing was profiled: the command imported PyTorch and ran no module", "",
               "name the command that trains: gpucast profile -- python train.py");
}

// Writes gzip when `path` ends in ".gz", else plain text.
class TraceWriter {
 public:
  TraceWriter(const std::string& path, bool compressed) : path_(path), file_(gzopen(path.c_str(), compressed ? "wb6" : "wbT")) {
    if (!file_) fail();
    gzbuffer(file_, 1 << 18);
  }
  ~TraceWriter() {
    if (file_) gzclose(file_);
  }
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void write(const char* data, size_t size) {
    if (size > 0 && gzwrite(file_, data, static_cast<unsigned>(size)) != static_cast<int>(size)) fail();
  }
  void close() {
    if (gzclose(std::exchange(file_, nullptr)) != Z_OK) fail();
  }

 private:
  [[noreturn]] void fail() const { throw Error(fmt::format("cannot write the trace: {}", std::strerror(errno)), path_, "free some space"); }

  std::string path_;
  gzFile file_;
};

// Copies PyTorch's trace with our record as its first key. (PyTorch's own function for metadata spoils quotes and backslashes.)
void join_trace(const std::string& session_folder, const run::CapturedProcess& process, const Json& record, const std::string& path,
                bool compressed) {
  const std::string source = fmt::format("{}/{}.trace", session_folder, process.pid);
  std::ifstream in(source, std::ios::binary);
  TraceWriter out(path, compressed);
  std::vector<char> buffer(1 << 20);
  bool inside = false;
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0) {
    const char* data = buffer.data();
    auto size = static_cast<size_t>(in.gcount());
    if (!inside) {
      const auto* brace = static_cast<const char*>(std::memchr(data, '{', size));
      if (!brace) throw Error("PyTorch's profiler wrote no JSON object", source, "please report this with your PyTorch's version");
      const std::string first = "{\n\"gpucast\": " + record.dump() + ",";
      out.write(first.data(), first.size());
      size -= static_cast<size_t>(brace + 1 - data);
      data = brace + 1;
      inside = true;
    }
    out.write(data, size);
  }
  if (!inside) throw Error("PyTorch's profiler wrote an empty trace", source, "please report this with your PyTorch's version");
  out.close();
}

// "trace.json.gz", 1 -> "trace.rank1.json.gz".
std::string trace_rank_path(const std::string& path, int64_t rank) {
  if (!path.ends_with(".gz")) return run::rank_path(path, rank);
  return run::rank_path(path.substr(0, path.size() - 3), rank) + ".gz";
}

Json full_record(const std::string& session_folder, const run::CapturedProcess& process, const ProfileCommand& options) {
  Json record = Json::parse(read_file(fmt::format("{}/{}.history", session_folder, process.pid)));
  if (!record.is_object()) throw Error("the profiled process left no record", fmt::format("process {}", process.pid));
  record["gpucast_version"] = kGpucastVersion;
  record["command"] = command_json(options.command);
  record["steps_requested"] = options.steps;
  return record;
}

void warn_of(const Json& record, const ProfileCommand& options) {
  const auto steps = record.value("steps", int64_t{0});
  if (steps == 0) {
    say("gpucast: warning: no optimizer step was made; the trace holds what ran until then\n");
  } else if (steps < options.steps) {
    say("gpucast: warning: the script ended after {} of {} optimizer steps\n", steps, options.steps);
  }
  for (const auto& warning : record["warnings"]) {
    say("gpucast: warning: {}\n", warning.value("message", ""));
  }
}

int profile(const ProfileCommand& options) {
  run::RunSettings settings;
  settings.mode = "profile";
  settings.gpu_chosen = !options.gpu.empty();
  settings.gpu = find_gpu(settings.gpu_chosen ? options.gpu : kDefaultGpu);
  settings.steps = options.steps;
  settings.timeout_s = options.timeout_s;
  settings.command = options.command;
  const std::string program = run::find_program(options.command.front());
  const std::string libraries = run::library_folder();
  const run::NoSigpipe no_sigpipe;
  auto output = std::make_unique<run::CaptureFile>(options.output, options.force, "trace.json");
  const run::SessionFolder session;
  const auto result = run::run_session(session, program, libraries, settings);
  if (!result) return kExitInterrupted;
  const std::vector<run::CapturedProcess>& profiled = result->captured;
  if (profiled.empty()) throw explain_nothing(result->command, options);

  bool failed = false;
  for (size_t i = 0; i < profiled.size(); ++i) {
    const bool ended_badly = run::say_if_failed(profiled[i], result->command);
    failed = failed || ended_badly;
    if (i > 0)
      output = std::make_unique<run::CaptureFile>(trace_rank_path(options.output, static_cast<int64_t>(i)), options.force, "trace.json");
    const Json record = full_record(session.path, profiled[i], options);
    join_trace(session.path, profiled[i], record, output->path(), options.output.ends_with(".gz"));
    if (i == 0) warn_of(record, options);
    say("gpucast: the trace {}is in {}\n", ended_badly ? "up to there " : "", output->keep());
  }
  say("gpucast: next: {}\n",
      shell_quote({"gpucast", "analyze", options.output, "--gpu", settings.gpu_chosen ? settings.gpu.id : kHintGpu}));
  return failed ? kExitFailed : kExitYes;
}

}  // namespace

void declare_profile(Arguments& arguments) {
  static ProfileCommand options;
  arguments.option("--gpu", &options.gpu, "the card that the script sees, named as in `gpucast gpus`");
  arguments.option("--steps", &options.steps, "end after this many optimizer steps").positive().shows_default();
  arguments.option("-o,--output", &options.output, "the trace: a .json, or .json.gz to compress it").shows_default();
  arguments.flag("--force", &options.force, "overwrite the output file");
  arguments.option("--timeout", &options.timeout_s, "end after this many seconds").positive();
  arguments.command(&options.command);
  arguments.action([] { return profile(options); });
}

}  // namespace gpucast::cli
