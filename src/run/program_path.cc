#include "src/run/program_path.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/gpu.h"  // did_you_mean

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin";

std::string environment_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::vector<std::string> programs_on_path() {
  std::vector<std::string> names;
  std::istringstream path(environment_or("PATH", ""));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) names.push_back(entry.path().filename());
  }
  return names;
}

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& program) {
  std::error_code unreadable;
  const bool is_file = fs::is_regular_file(program, unreadable);
  const std::string python_hint = fmt::format("a script needs its Python: -- python {}", program);
  if (program.find('/') != std::string::npos) {
    if (is_program(program)) return program;
    if (fs::is_directory(program, unreadable)) throw Error(fmt::format("'{}' is a folder, not a command", program));
    if (!is_file) throw Error(fmt::format("no such command: '{}'", program), "", "check the path");
    throw Error(fmt::format("'{}' is not executable", program), "",
                program.ends_with(".py") ? python_hint : fmt::format("chmod +x {}", program));
  }
  std::istringstream path(environment_or("PATH", kUsualPath));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::string candidate = (folder.empty() ? std::string(".") : folder) + "/" + program;
    if (is_program(candidate)) return candidate;
  }
  if (program.ends_with(".py")) throw Error(fmt::format("no such command: '{}'", program), "", python_hint);
  if (program == "python" && is_program("/usr/bin/python3")) {
    throw Error("no such command: 'python'", "", "did you mean 'python3'? Or activate the environment that holds PyTorch");
  }
  const auto near = did_you_mean(program, programs_on_path());
  throw Error(fmt::format("no such command: '{}'", program), "",
              near ? fmt::format("did you mean '{}'?", *near) : "check the spelling, and that it is on PATH");
}

std::optional<std::string> resolve_program(const std::string& program, const std::string& path_variable, const std::string& folder) {
  std::error_code error;
  const fs::path start = fs::absolute(folder, error);
  if (program.find('/') != std::string::npos) {
    const fs::path path = start / program;
    return is_program(path) ? std::optional(path.string()) : std::nullopt;
  }
  std::istringstream entries(path_variable.empty() ? kUsualPath : path_variable);
  for (std::string entry; std::getline(entries, entry, ':');) {
    const fs::path path = start / entry / program;
    if (is_program(path)) return path.string();
  }
  return std::nullopt;
}

}  // namespace gpucast::run
