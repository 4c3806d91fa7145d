#include "src/run/made_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

struct Record {
  char letter = 0;
  std::string path, second;
};

// Unset: the end, or a record that is not whole.
std::optional<Record> read_record(std::istream& in) {
  Record out;
  std::string letter;
  if (!std::getline(in, letter, '\0') || letter.size() != 1 || !std::getline(in, out.path, '\0') || in.eof()) return std::nullopt;
  out.letter = letter.front();
  const bool has_second = out.letter == 'L' || out.letter == 'K' || out.letter == 'R';
  if (has_second && (!std::getline(in, out.second, '\0') || in.eof())) return std::nullopt;
  return out;
}

bool is_there(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

void undo(const Record& record, const std::string& session_folder) {
  std::error_code ignored;
  switch (record.letter) {
    case 'F':
      unlink(record.path.c_str());
      break;
    case 'D':
      rmdir(record.path.c_str());  // only an empty one
      break;
    case 'L':
      if (const auto length = std::strtoull(record.second.c_str(), nullptr, 10); fs::file_size(record.path, ignored) > length && !ignored)
        fs::resize_file(record.path, length, ignored);
      break;
    case 'K': {
      std::ifstream copy(session_folder + "/" + record.second, std::ios::binary);
      if (!copy) break;
      std::ofstream out(record.path, std::ios::binary | std::ios::trunc);
      if (copy.peek() != std::ifstream::traits_type::eof()) out << copy.rdbuf();
      break;
    }
    case 'R':
      if (is_there(record.second) && !is_there(record.path)) std::rename(record.second.c_str(), record.path.c_str());
      break;
    default:
      break;
  }
}

}  // namespace

void undo_made_files(const std::string& session_folder) {
  const std::string path = session_folder + "/made_files";
  std::ifstream in(path, std::ios::binary);
  std::vector<Record> records;
  while (auto record = read_record(in)) records.push_back(std::move(*record));
  for (auto record = records.rbegin(); record != records.rend(); ++record) undo(*record, session_folder);
  unlink(path.c_str());
}

}  // namespace gpucast::run
