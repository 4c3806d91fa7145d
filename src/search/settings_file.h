// A settings file (YAML, TOML, JSON) that a command names: its numbers, and copies with another one. python/settings/edit.py reads and
// edits it, in the command's own Python.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpucast::search {

bool is_settings_file(const std::string& path);

struct SettingsFile {
  std::vector<std::pair<std::string, int64_t>> numbers;  // "train.batch_size", 8; in the file's order
};
// `path`: relative to `folder`. Throws Error, with line and column where the file is no YAML.
SettingsFile read_settings(const std::vector<std::string>& command, const std::string& folder, const std::string& path);

// The command with `path` replaced by a copy of that file in which `key` has another value. The copy is in `copies`. Throws Error: the
// command does not name the file, the file has no such key.
std::vector<std::string> with_settings(const std::vector<std::string>& command, const std::string& folder, const std::string& path,
                                       const std::string& key, const std::string& value, const std::string& copies);

}  // namespace gpucast::search
