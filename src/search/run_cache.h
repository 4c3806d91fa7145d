// Captures of earlier runs: a folder a run, named by the hash of its key (run_key.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/search/run.h"

namespace gpucast::search {

class RunCache {
 public:
  // Makes the folder, and removes the least recently used runs if they are too large. Throws Error when it cannot be written.
  explicit RunCache(std::string folder);

  // An empty folder for a new run with this key: its captures go there. Throws Error.
  std::string begin(const std::string& key) const;
  // The run's captures are complete: later finds get them.
  void keep(const std::string& key, const Run& run) const;
  // Unset: there is none, or a file that it used has changed.
  std::optional<Run> find(const std::string& key, const RunSpec& spec) const;

 private:
  std::string folder_of(const std::string& key) const;
  void remove_oldest() const;

  std::string folder_;
};

// FOLDER/run.gpucast and the files of its further ranks.
std::vector<std::string> captures_in(const std::string& folder);

}  // namespace gpucast::search
