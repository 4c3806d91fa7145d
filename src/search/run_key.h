// What a run's capture depends on, as a text: the spec, gpucast itself, the Python, the environment, and the user's files.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/search/run_spec.h"

namespace gpucast::search {

// The keys of runs that are made together: each folder is read once.
class RunKeys {
 public:
  RunKeys();

  // Equal texts: the same capture, as far as can be known before the run. Of the files: those in the working folder, in the script's folder
  // and in PYTHONPATH that hold source or settings (*.py, *.yaml, ...), and each file that a word of the command names.
  std::string of(const RunSpec& spec);

 private:
  using States = std::map<std::string, std::string>;  // of files, by path

  States file_states(const RunSpec& spec, const std::string& python_path);

  std::string gpucast_;                              // its version, and the dates of its files
  std::map<std::filesystem::path, States> sources_;  // by folder
};

// The state of files that a run turned out to use (sources in its stacks), as JSON: for each path its size and a hash of its contents, for
// a folder of installed packages its date.
Json used_files(const std::vector<std::string>& paths);
// Whether they are the same now.
bool unchanged(const Json& used_files);

// 16 hexadecimal digits.
std::string short_hash(std::string_view text);

}  // namespace gpucast::search
