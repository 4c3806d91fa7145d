#include "src/search/settings_file.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/run/child_process.h"
#include "src/run/program_path.h"
#include "src/run/session_folder.h"
#include "src/search/run_key.h"

namespace gpucast::search {
namespace {

namespace fs = std::filesystem;

// The command's Python, else the one on PATH.
std::string python_of(const std::vector<std::string>& command, const std::string& folder) {
  const char* path = std::getenv("PATH");
  const std::string name = fs::path(command.front()).filename().string();
  const std::string wanted = name.starts_with("python") ? command.front() : "python3";
  if (const auto found = run::resolve_program(wanted, path != nullptr ? path : "", folder)) return *found;
  throw Error(fmt::format("no such command: '{}'", wanted), "", "settings files are read by Python: put it on PATH");
}

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

Json edit(const std::vector<std::string>& command, const std::string& folder, const char* action, const std::string& path,
          const std::vector<std::string>& more) {
  std::vector<std::string> words = {python_of(command, folder), run::library_folder() + "/python/settings/edit.py", action,
                                    (fs::absolute(folder) / path).string()};
  words.insert(words.end(), more.begin(), more.end());
  const Json answer = Json::parse(output_of(words));
  if (!answer.is_object()) throw Error("the settings file could not be read: its Python ended early", path, "try " + words.front());
  if (answer.contains("problem")) {
    const int64_t line = answer.value("line", 0);
    throw Error(fmt::format("the settings file: {}", answer.value("problem", "")),
                line > 0 ? fmt::format("{}:{}:{}", path, line, answer.value("column", 0)) : path,
                "mend it, or name an option of the command: --vary batch=--batch-size:1..512");
  }
  return answer;
}

}  // namespace

bool is_settings_file(const std::string& path) {
  static constexpr std::string_view kKinds[] = {".yaml", ".yml", ".toml", ".json"};
  return std::ranges::any_of(kKinds, [&](std::string_view kind) { return path.size() > kind.size() && path.ends_with(kind); });
}

SettingsFile read_settings(const std::vector<std::string>& command, const std::string& folder, const std::string& path) {
  const Json answer = edit(command, folder, "numbers", path, {});
  SettingsFile file;
  const Json& numbers = answer["numbers"];
  for (size_t i = 0; i < numbers.size(); ++i) file.numbers.emplace_back(numbers.keys()[i], numbers.at(i).get<int64_t>());
  return file;
}

std::vector<std::string> with_settings(const std::vector<std::string>& command, const std::string& folder, const std::string& path,
                                       const std::string& key, const std::string& value, const std::string& copies) {
  std::vector<std::string> out = command;
  const auto names_it = [&](const std::string& word) { return word == path || word.ends_with("=" + path); };
  const auto word = std::ranges::find_if(out, names_it);
  if (word == out.end()) throw Error("the command does not name this file", path, "write it as the command does");
  const std::string text = edit(command, folder, "set", path, {key, value})["text"].get<std::string>();
  const std::string copy_folder = copies + "/" + short_hash(fs::absolute(folder).string() + path + text);
  const std::string copy = copy_folder + "/" + fs::path(path).filename().string();
  std::error_code error;
  fs::create_directories(copy_folder, error);
  std::ofstream file(copy);
  file << text;
  if (error || !file.flush()) throw Error("cannot write a copy of the settings file", copy, "name another folder: --cache FOLDER");
  *word = word->substr(0, word->size() - path.size()) + copy;
  return out;
}

}  // namespace gpucast::search
