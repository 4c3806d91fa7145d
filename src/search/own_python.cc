#include "src/search/own_python.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "gpucast/error.h"
#include "src/run/child_process.h"
#include "src/run/program_path.h"
#include "src/run/session_folder.h"

namespace gpucast::search {
namespace {

std::string output_of(const std::vector<std::string>& words) {
  run::Pipe out = run::make_pipe();
  run::Program program;
  program.path = words.front();
  program.words = words;
  program.environment = run::own_environment();
  program.folder = ".";
  program.output = out.writer.get();
  const pid_t pid = run::start_process(program);
  out.writer.reset();
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t size = 0; (size = read(out.reader.get(), part.data(), part.size())) != 0;) {
    if (size > 0) text.append(part.data(), static_cast<size_t>(size));
    if (size < 0 && errno != EINTR) break;
  }
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace

std::string python_of(const std::vector<std::string>& command, const std::string& folder, const std::string& to_do) {
  const char* path = std::getenv("PATH");
  const std::string name = std::filesystem::path(command.front()).filename().string();
  const std::string wanted = name.starts_with("python") ? command.front() : "python3";
  if (const auto found = run::resolve_program(wanted, path != nullptr ? path : "", folder)) return *found;
  throw Error(fmt::format("no such command: '{}'", wanted), "", to_do);
}

Json answer_of_python(const std::string& python, const std::string& program, const std::vector<std::string>& words) {
  std::vector<std::string> all = {python, "-B", run::library_folder() + "/python/" + program};
  all.insert(all.end(), words.begin(), words.end());
  return Json::parse(output_of(all));
}

}  // namespace gpucast::search
