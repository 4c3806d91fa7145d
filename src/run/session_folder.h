// The private folder through which gpucast and the capture layer in the command's processes talk (docs/explanation/architecture.md lists
// its files), and the environment that names it.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gpucast::run {

// Where bin/../lib/gpucast is (of a wheel: libexec/gpucast), from the executable's own path. Throws Error when it is incomplete.
std::string library_folder();

// A private folder in the system's temporary folder (mode 0700). Throws Error where none can be made.
std::string make_session_folder();
// Removes a folder and all in it.
void remove_folder(const std::string& folder);

// A session folder that is removed on every way out.
struct SessionFolder {
  SessionFolder() : path(make_session_folder()) {}
  ~SessionFolder() { remove_folder(path); }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  std::string path;
};

// Which kinds of files each process has written: "armed", "done", ... of PID.armed, PID.done.
std::map<pid_t, std::set<std::string>> session_files(const std::string& session_folder);

// Throws Error, with what to do, when it cannot be written whole.
void write_session_file(const std::string& path, const std::string& text);

std::vector<std::string> own_environment();  // "NAME=value"
// The environment of the command: `base` (none: ours) with the capture layer put in front of PYTHONPATH, and the session named.
std::vector<std::string> session_environment(const std::string& library_folder, const std::string& session_folder,
                                             const std::optional<std::vector<std::string>>& base = std::nullopt);

}  // namespace gpucast::run
