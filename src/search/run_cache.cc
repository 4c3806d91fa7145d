#include "src/search/run_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/base/json.h"
#include "src/base/read_file.h"
#include "src/search/run_key.h"

namespace gpucast::search {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEntry = "run.json";
constexpr uintmax_t kMostBytes = uintmax_t{2} << 30;  // of all captures

[[noreturn]] void cannot_write(const std::string& path, const std::error_code& error) {
  throw Error(fmt::format("cannot write to the cache of runs: {}", error.message()), path, "name another folder: --cache FOLDER");
}

// Sources that the stacks of the capture name.
std::vector<std::string> files_of(const std::vector<std::string>& captures) {
  std::set<std::string> files;
  const Trace trace = read_trace(captures.front());
  for (const Frame& frame : trace.frames) files.emplace(trace.strings.text(frame.file));
  return {files.begin(), files.end()};
}

uintmax_t bytes_in(const fs::path& folder) {
  uintmax_t bytes = 0;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    const uintmax_t size = file.file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace

std::vector<std::string> captures_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    if (file.path().extension() == ".gpucast") out.push_back(file.path().string());
  }
  // "run.gpucast" before "run.rank1.gpucast" before "run.rank10.gpucast".
  std::ranges::sort(out, {}, [](const std::string& path) { return std::pair(path.size(), path); });
  return out;
}

RunCache::RunCache(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) cannot_write(folder_, error);
  // As https://bford.info/cachedir/ asks, so that backups leave it out.
  std::ofstream(folder_ + "/CACHEDIR.TAG") << "Signature: 8a477f597d28d172789f06886806bc55\n";
}

std::string RunCache::folder_of(const std::string& key) const { return folder_ + "/" + short_hash(key); }

std::string RunCache::begin(const std::string& key) const {
  remove_oldest();
  std::string folder = folder_of(key);
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  if (error) cannot_write(folder, error);
  return folder;
}

void RunCache::keep(const std::string& key, const Run& run) const {
  Json entry;
  entry["key"] = key;
  entry["seconds"] = run.seconds;
  entry["ran_out"] = run.end == RunEnd::out_of_memory;
  entry["used"] = used_files(files_of(run.captures));
  const std::string path = folder_of(key) + "/" + kEntry, temporary = path + ".new";
  {
    std::ofstream file(temporary);
    file << entry.dump() << "\n";
    if (!file.flush()) cannot_write(temporary, std::make_error_code(std::errc::io_error));
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (error) cannot_write(path, error);
}

std::optional<Run> RunCache::find(const std::string& key, const RunSpec& spec) const {
  const std::string folder = folder_of(key), path = folder + "/" + kEntry;
  const Json entry = Json::parse(read_file(path));
  if (!entry.is_object() || entry["key"].get<std::string>() != key || !unchanged(entry["used"])) return std::nullopt;
  Run run;
  run.spec = spec;
  run.captures = captures_in(folder);
  if (run.captures.empty()) return std::nullopt;
  run.end = entry.value("ran_out", false) ? RunEnd::out_of_memory : RunEnd::captured;
  run.seconds = entry.value("seconds", 0.0);
  run.cached = true;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return run;
}

// The least recently used runs, until the rest is small enough.
void RunCache::remove_oldest() const {
  struct Entry {
    fs::file_time_type used;
    fs::path folder;
    uintmax_t bytes = 0;
  };
  std::vector<Entry> entries;
  uintmax_t bytes = 0;
  std::error_code error;
  for (const auto& folder : fs::directory_iterator(folder_, error)) {
    std::error_code none;
    const auto used = fs::last_write_time(folder.path() / kEntry, none);
    if (none) continue;  // begun by another search
    entries.push_back({used, folder.path(), bytes_in(folder.path())});
    bytes += entries.back().bytes;
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (bytes <= kMostBytes) return;
    fs::remove_all(entry.folder, error);
    bytes -= entry.bytes;
  }
}

}  // namespace gpucast::search
