#include "src/search/run_key.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "gpucast/error.h"
#include "src/base/command_words.h"
#include "src/base/read_file.h"
#include "src/run/program_path.h"
#include "src/run/session_folder.h"
#include "version.h"

namespace gpucast::search {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 2000;              // of a folder: beyond them it holds data, and no source
constexpr int kMostDepth = 6;                    // of folders in it
constexpr uintmax_t kMostHashedBytes = 4 << 20;  // larger files: their date
constexpr std::string_view kSourceKinds[] = {".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh", ".gin"};
// Folders of a script's own results.
constexpr std::string_view kSkippedFolders[] = {"__pycache__", "node_modules", "outputs", "multirun", "runs", "wandb", "lightning_logs"};
constexpr std::string_view kOwnFiles[] = {"gpucast.toml", "gpucast.baseline.json"};  // of `gpucast check`, not of a script
// Of the shell and the terminal: no script's memory depends on them.
constexpr std::string_view kIgnoredVariables[] = {"_",     "PWD",  "OLDPWD",   "SHLVL",   "COLUMNS",
                                                  "LINES", "TERM", "WINDOWID", "SSH_TTY", "PYTEST_CURRENT_TEST"};

std::string modified(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error ? "gone" : std::to_string(static_cast<int64_t>(time.time_since_epoch().count()));  // libc++ counts in 128 bits
}

// Size and contents; of large files and of folders the date.
std::string state_of(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return modified(path);
  const uintmax_t size = fs::file_size(path, error);
  if (error) return "gone";
  return fmt::format("{} {}", size, size > kMostHashedBytes ? modified(path) : short_hash(read_file(path.string())));
}

bool is_source(const fs::path& path) {
  if (std::find(std::begin(kOwnFiles), std::end(kOwnFiles), path.filename().string()) != std::end(kOwnFiles)) return false;
  return std::find(std::begin(kSourceKinds), std::end(kSourceKinds), path.extension().string()) != std::end(kSourceKinds);
}

// Sources and settings in a folder and its subfolders. Hidden folders, caches and environments are left out.
void add_sources(const fs::path& folder, std::map<std::string, std::string>* states) {
  std::error_code error;
  size_t seen = 0;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator() && seen < kMostFiles; entry.increment(error), ++seen) {
    const fs::path& path = entry->path();
    const std::string name = path.filename().string();
    std::error_code unreadable;
    if (entry->is_directory(unreadable)) {
      const bool skipped = name.starts_with('.') || std::ranges::find(kSkippedFolders, name) != std::end(kSkippedFolders) ||
                           fs::exists(path / "pyvenv.cfg", unreadable) || fs::exists(path / "CACHEDIR.TAG", unreadable);
      if (skipped || entry.depth() >= kMostDepth) entry.disable_recursion_pending();
    } else if (is_source(path)) {
      states->emplace(path.string(), state_of(path));
    }
  }
}

std::map<std::string, std::string> environment_after(const RunSpec& spec) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : run::own_environment()) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const auto& [name, value] : spec.environment) {
    if (value) {
      variables[name] = *value;
    } else {
      variables.erase(name);
    }
  }
  for (const std::string_view name : kIgnoredVariables) variables.erase(std::string(name));
  return variables;
}

Json spec_json(const RunSpec& spec) {
  Json out;
  out["command"] = command_json(spec.command);
  out["folder"] = fs::absolute(spec.folder).lexically_normal().string();
  out["gpu"] = spec.gpu;
  out["steps"] = spec.steps;
  out["what_ifs"] = spec.what_ifs;
  out["gpus"] = spec.gpus;
  out["world_size"] = spec.world_size;
  out["ranks"] = spec.ranks;
  out["enforce_capacity"] = spec.enforce_capacity;
  return out;
}

// The date of the capture layer. "": this is no complete installation, and it runs nothing.
std::string layer_state() {
  try {
    return modified(fs::path(run::library_folder()) / "python");
  } catch (const Error&) {
    return "";
  }
}

Json object_of(const std::map<std::string, std::string>& texts) {
  Json out = Json::object();
  for (const auto& [name, text] : texts) out[name] = text;
  return out;
}

}  // namespace

std::string short_hash(std::string_view text) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  return fmt::format("{:016x}", hash);
}

RunKeys::RunKeys() {
  const fs::path self = fs::read_symlink("/proc/self/exe");
  gpucast_ = fmt::format("{} {} {}", kGpucastVersion, state_of(self), layer_state());
}

RunKeys::States RunKeys::file_states(const RunSpec& spec, const std::string& python_path) {
  const fs::path folder = fs::absolute(spec.folder);
  States states;
  std::set<fs::path> folders = {folder.lexically_normal()};
  for (const std::string& word : spec.command) {
    for (const std::string& part : {word, word.substr(std::min(word.size(), word.find('=') + 1))}) {
      const fs::path path = (folder / part).lexically_normal();
      std::error_code error;
      if (part.empty() || !fs::is_regular_file(path, error)) continue;
      states.emplace(path.string(), state_of(path));
      if (is_source(path)) folders.insert(path.parent_path());
    }
  }
  std::istringstream entries(python_path);
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (!entry.empty()) folders.insert((folder / entry).lexically_normal());
  }
  for (const fs::path& each : folders) {
    const auto [known, is_new] = sources_.try_emplace(each);
    if (is_new) add_sources(each, &known->second);
    states.insert(known->second.begin(), known->second.end());
  }
  return states;
}

std::string RunKeys::of(const RunSpec& spec) {
  const auto variables = environment_after(spec);
  const auto variable = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  Json key = spec_json(spec);
  key["gpucast"] = gpucast_;
  const auto program = run::resolve_program(spec.command.front(), variable("PATH"), spec.folder);
  key["program"] = program ? fmt::format("{} {}", *program, state_of(*program)) : "";
  key["environment"] = object_of(variables);
  key["files"] = object_of(file_states(spec, variable("PYTHONPATH")));
  return key.dump();
}

Json used_files(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> states;
  for (const std::string& path : paths) {
    const size_t packages = std::max(path.rfind("/site-packages/") + 1, path.rfind("/dist-packages/") + 1);
    if (packages > 0) {
      const std::string folder = path.substr(0, path.find('/', packages));
      states.emplace(folder, state_of(folder));
    } else if (path.starts_with('/')) {
      states.emplace(path, state_of(path));
    }
  }
  return object_of(states);
}

bool unchanged(const Json& used_files) {
  for (size_t i = 0; i < used_files.size(); ++i) {
    if (state_of(used_files.keys()[i]) != used_files.at(i).get<std::string>()) return false;
  }
  return true;
}

}  // namespace gpucast::search
