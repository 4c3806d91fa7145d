// The private folder that gpucast and the capture layer exchange files in (docs/explanation/architecture.md lists them), and the
// environment variable with its path.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gpucast::run {

// The path of bin/../lib/gpucast (in a wheel: libexec/gpucast), found from the executable's own path. Throws Error when it is incomplete.
std::string library_folder();

// Makes a private folder (mode 0700) in the system's temporary folder. Throws Error when that fails.
std::string make_session_folder();
// Removes a folder and all in it.
void remove_folder(const std::string& folder);
// The same for a session's folder. First removes the files that stand for unwritten checkpoints (python/gpucast/unwritten_files.py), where
// a process ended before it could, and in a run that leaves no files those that the script made.
void remove_session(const std::string& folder);

// A session folder that its destructor removes.
struct SessionFolder {
  SessionFolder() : path(make_session_folder()) {}
  ~SessionFolder() { remove_session(path); }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  std::string path;
};

// The kinds of files that each process has written: "armed" for PID.armed, "done" for PID.done, ...
std::map<pid_t, std::set<std::string>> session_files(const std::string& session_folder);

// Throws Error with a hint when the file cannot be written completely.
void write_session_file(const std::string& path, const std::string& text);

std::vector<std::string> own_environment();  // "NAME=value"
// The environment of the command: `base` (default: ours) with the capture layer first in PYTHONPATH, and the session's path.
std::vector<std::string> session_environment(const std::string& library_folder, const std::string& session_folder,
                                             const std::optional<std::vector<std::string>>& base = std::nullopt);

}  // namespace gpucast::run
