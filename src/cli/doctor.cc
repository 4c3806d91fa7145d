// `gpucast doctor`: checks whether gpucast can use the user's Python, and if not, says what to do.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"
#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/cli/subcommand.h"
#include "src/run/processes.h"
#include "src/run/program_path.h"
#include "src/run/run_session.h"
#include "src/run/session_folder.h"
#include "src/run/supervise.h"
#include "version.h"

namespace gpucast::cli {
namespace {

constexpr double kDoctorTimeout_s = 180;
constexpr int64_t kMatmulBytes = int64_t{1024} * 1024 * 4;  // each tensor of the probe's job

struct Trouble {
  std::string what, to_do;
};

std::vector<std::string> texts(const Json& object, const char* key) {
  std::vector<std::string> all;
  for (const Json& entry : object[key]) all.push_back(entry.get<std::string>());
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

// The problems, worst first. Empty: usable.
std::vector<Trouble> diagnose(const Json& found, const Json& error, const run::Supervised& run) {
  std::vector<Trouble> problems;
  const std::string python = found.value("python", "");
  const std::string install = "pip install torch";
  if (!found.is_object()) {
    const std::string code = run.exit_code ? fmt::format(" (exit code {})", *run.exit_code) : "";
    problems.push_back({fmt::format("Python ended before the check was done{}", code), "what it printed is above"});
    return problems;
  }
  if (const std::string failure = found.value("failure", ""); !failure.empty()) {
    problems.push_back({"PyTorch cannot be used: " + failure, "check that this Python imports it: " + python + " -c 'import torch'"});
    return problems;
  }
  if (found.value("hooks_loaded", true) == false)
    problems.push_back(
        {"gpucast's hooks did not load in this Python", "is it started with -I, -E or -S, or by a wrapper that clears PYTHONPATH?"});
  if (found.value("torch", "").empty()) {
    problems.push_back(
        {"PyTorch is not installed in this Python", fmt::format("activate the environment that holds it, or: {} -m {}", python, install)});
    return problems;
  }
  const std::string code = error.value("code", "");
  const std::string release = found.value("torch", "").substr(0, found.value("torch", "").find('+'));
  if (code == "cpu_only_torch" || code == "rocm_torch") {
    problems.push_back(
        {error.value("message", ""),
         fmt::format("install the CUDA build, e.g. in a new environment: {}=={} (no GPU or driver is needed); or predict from a profile on "
                     "the CPU: gpucast profile -- python train.py",
                     install, release)});
    return problems;
  }
  if (code == "unknown_cuda") {
    problems.push_back({error.value("message", ""), "install a PyTorch built for CUDA 12 or 13 in a new environment"});
    return problems;
  }
  if (!code.empty()) problems.push_back({error.value("message", ""), ""});
  if (!found.value("cuda_available", false)) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    problems.push_back({"torch.cuda.is_available() is false", visible ? "unset CUDA_VISIBLE_DEVICES" : "please report this"});
    return problems;
  }
  const Json libraries = found.contains("libraries") ? found["libraries"] : Json::object();
  if (texts(libraries, "ours").empty()) problems.push_back({"none of gpucast's libraries took effect", "please report this"});
  if (const auto foreign = texts(libraries, "nvidia"); !foreign.empty())
    problems.push_back({"NVIDIA's own libraries were loaded in addition to gpucast's: " + joined(foreign), "is LD_PRELOAD set? Unset it"});
  if (found.value("torchvision", "").rfind("cannot", 0) == 0)
    problems.push_back({"torchvision " + found.value("torchvision", ""), "install the torchvision that belongs to this PyTorch"});
  if (!found.contains("small_job") || found["small_job"].value("allocated_bytes", 0) < 2 * kMatmulBytes)
    problems.push_back({"a small job on the virtual GPU did not allocate what it should", "please report this"});
  return problems;
}

void print_text(const Json& report) {
  const auto row = [](const char* name, const std::string& value) { fmt::print("{:<14} {}\n", name, value); };
  const Json& found = report["found"];
  row("gpucast", report["gpucast_version"].get<std::string>());
  row("python", fmt::format("{} ({})", found.value("python", ""), found.value("python_version", "")));
  if (found.contains("torch")) {
    const std::string torch = found.value("torch", "");
    row("torch", torch.empty() ? "not installed" : fmt::format("{} in {}", torch, found.value("torch_folder", "")));
  }
  if (found.contains("cuda")) row("CUDA", found.value("cuda", "").empty() ? "none: a CPU-only build" : found.value("cuda", ""));
  if (found.contains("torchvision"))
    row("torchvision", found.value("torchvision", "").empty() ? "not installed" : found.value("torchvision", ""));
  if (found.contains("nvidia_wheels")) {
    const auto wheels = texts(found, "nvidia_wheels");
    row("NVIDIA wheels", wheels.empty() ? "not installed (not needed)" : fmt::format("{} installed (not used)", wheels.size()));
  }
  if (found.contains("libraries")) {
    const auto ours = texts(found["libraries"], "ours");
    row("libraries", fmt::format("{} of gpucast's in place", ours.size()));
    for (const auto& path : texts(found["libraries"], "nvidia")) row("", "NVIDIA's own: " + path);
  }
  if (found.contains("gpu")) {
    const Json& gpu = found["gpu"];
    row("GPU seen", fmt::format("{}, {}, capability {}", gpu.value("name", ""), format_bytes(gpu.value("total_memory_bytes", 0)),
                                gpu.value("capability", "")));
  }
  if (found.contains("small_job")) {
    row("small job", fmt::format("ran: {} allocated, {} reserved", format_bytes(found["small_job"].value("allocated_bytes", 0)),
                                 format_bytes(found["small_job"].value("reserved_bytes", 0))));
  }
  fmt::print("\n");
  if (report["usable"].get<bool>()) {
    fmt::print("Usable. Try: gpucast run -- python train.py\n");
    return;
  }
  for (const auto& problem : report["problems"]) {
    fmt::print("Problem: {}\n", problem.value("what", ""));
    if (const auto to_do = problem.value("to_do", ""); !to_do.empty()) fmt::print("  to do: {}\n", to_do);
  }
}

int doctor(const std::string& python, bool as_json) {
  const std::string libraries = run::library_folder();
  const std::string program = run::find_program(python);
  const run::NoSigpipe no_sigpipe;
  struct Folder {
    std::string path = run::make_session_folder();
    ~Folder() { run::remove_folder(path); }
  } const session;
  run::RunSettings settings;
  settings.mode = "doctor";
  settings.gpu = find_gpu("a100-80");
  run::write_session(session.path, libraries, settings);
  const std::vector<std::string> command{python, libraries + "/python/gpucast/probe.py"};
  const run::Supervised run =
      run::supervise(program, command, run::session_environment(libraries, session.path), session.path, kDoctorTimeout_s);
  if (run.end == run::Supervised::End::interrupted) return kExitInterrupted;

  Json found = Json::parse(read_file(session.path + "/doctor.json"));
  const Json error = Json::parse(run.error_json);
  Json report;
  report["schema_version"] = 1;
  report["gpucast_version"] = kGpucastVersion;
  report["library_folder"] = libraries;
  const auto problems = diagnose(found, error, run);
  report["usable"] = problems.empty();
  report["problems"] = Json::array();
  for (const auto& problem : problems) report["problems"].push_back({{"what", problem.what}, {"to_do", problem.to_do}});
  report["found"] = found.is_object() ? found : Json{{"python", program}};
  if (as_json) {
    fmt::print("{}\n", report.dump(2));
  } else {
    print_text(report);
  }
  return problems.empty() ? kExitYes : kExitFailed;
}

}  // namespace

void declare_doctor(Arguments& arguments) {
  static std::string python = "python3", format = "text";
  arguments.option("--python", &python, "the Python that runs the training script").shows_default();
  arguments.option("--format", &format, "text or json").one_of({"text", "json"}).shows_default();
  arguments.action([] { return doctor(python, format == "json"); });
}

}  // namespace gpucast::cli
