#include "src/run/session_folder.h"

#include <dirent.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "gpucast/error.h"
#include "src/run/made_files.h"

extern char** environ;

namespace gpucast::run {

namespace fs = std::filesystem;

std::string library_folder() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) throw Error("cannot find gpucast's own files: /proc/self/exe cannot be read");
  fs::path folder = (executable.parent_path() / "../lib/gpucast").lexically_normal();
  if (!fs::exists(folder / "vgpu")) folder = (executable.parent_path() / "../libexec/gpucast").lexically_normal();  // a wheel
  for (const char* part : {"python/site/sitecustomize.py", "vgpu/libgpucast_vgpu_core.so"}) {
    if (!fs::exists(folder / part)) {
      throw Error("this installation of gpucast is incomplete", (folder / part).string() + " does not exist",
                  "build or install it again: make install");
    }
  }
  return folder.string();
}

std::string make_session_folder() {
  std::error_code error;
  fs::path temporary = fs::temp_directory_path(error);
  if (error) temporary = "/tmp";
  std::string folder = fs::absolute(temporary / "gpucast-XXXXXX").string();
  if (!mkdtemp(folder.data())) {
    throw Error(fmt::format("cannot make a temporary folder: {}", std::strerror(errno)), folder,
                "set TMPDIR to a folder that can be written");
  }
  return folder;
}

void remove_folder(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

void remove_session(const std::string& folder) {
  undo_made_files(folder);
  for (const auto& [pid, kinds] : session_files(folder)) {
    if (!kinds.contains("unwritten")) continue;
    // A line a file: inode, bytes, time of change, path. A file of the user's that has come to its place differs.
    std::ifstream in(fmt::format("{}/{}.unwritten", folder, pid), std::ios::binary);
    uint64_t inode = 0;
    int64_t size_bytes = 0, changed_ns = 0;
    std::string path;
    while (in >> inode >> size_bytes >> changed_ns && in.get() == ' ' && std::getline(in, path, '\0')) {
      struct stat found {};
      if (lstat(path.c_str(), &found) == 0 && found.st_ino == inode && found.st_size == size_bytes &&
          found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec == changed_ns)
        unlink(path.c_str());
    }
  }
  remove_folder(folder);
}

std::map<pid_t, std::set<std::string>> session_files(const std::string& folder) {
  std::map<pid_t, std::set<std::string>> files;
  if (DIR* dir = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      const auto dot = name.find('.');
      if (const pid_t pid = std::atoi(name.c_str()); pid > 0 && dot != std::string::npos) files[pid].insert(name.substr(dot + 1));
    }
    closedir(dir);
  }
  return files;
}

void write_session_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw Error("cannot write to the temporary folder", path, "free some space, or set TMPDIR");
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::vector<std::string> session_environment(const std::string& library_folder, const std::string& session_folder,
                                             const std::optional<std::vector<std::string>>& base) {
  std::vector<std::string> environment;
  std::string python_path = library_folder + "/python/site";
  for (const std::string& variable : base ? *base : own_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    if (name == "PYTHONPATH") {
      if (variable.size() > name.size() + 1) python_path += ":" + variable.substr(name.size() + 1);
    } else if (name != "GPUCAST_SESSION" && name != "GPUCAST_VGPU_PROFILE") {
      environment.push_back(variable);
    }
  }
  environment.push_back("PYTHONPATH=" + python_path);
  environment.push_back("GPUCAST_SESSION=" + session_folder);
  environment.push_back("GPUCAST_VGPU_PROFILE=" + session_folder + "/profile.base");
  return environment;
}

}  // namespace gpucast::run
