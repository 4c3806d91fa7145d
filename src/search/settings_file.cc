#include "src/search/settings_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "src/search/own_python.h"
#include "src/search/run_key.h"

namespace gpucast::search {
namespace {

namespace fs = std::filesystem;

Json edit(const std::vector<std::string>& command, const std::string& folder, const char* action, const std::string& path,
          const std::vector<std::string>& more) {
  std::vector<std::string> words = {action, (fs::absolute(folder) / path).string()};
  words.insert(words.end(), more.begin(), more.end());
  const std::string python = python_of(command, folder, "settings files are read by Python: put it on PATH");
  const Json answer = answer_of_python(python, "settings/edit.py", words);
  if (!answer.is_object()) throw Error("the settings file could not be read: its Python ended early", path, "try " + python);
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
