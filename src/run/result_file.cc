#include "src/run/result_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "gpucast/error.h"
#include "src/run/batch_results.h"
#include "src/run/child_process.h"

namespace gpucast::run {

ResultFile::ResultFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_ = Fd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) throw Error(fmt::format("cannot write the results: {}", std::strerror(errno)), path, "name a file: -o results.jsonl");
  struct stat status {};
  if (fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Error("the output is no ordinary file", path, "name a file: -o results.jsonl");
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
    throw Error("another gpucast batch writes these results", path, "wait for it, or name another file");
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  former = read_results(text, path);
  if (former.size_bytes < static_cast<int64_t>(text.size()) && ftruncate(file_.get(), former.size_bytes) != 0) {
    throw Error(fmt::format("cannot write the results: {}", std::strerror(errno)), path);
  }
}

bool ResultFile::write_line(const std::string& line) {
  const int fd = file_ ? file_.get() : STDOUT_FILENO;
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t part = write(fd, line.data() + sent, line.size() - sent);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0 && errno == EPIPE) return false;
    if (part < 0) throw Error(fmt::format("cannot write the results: {}", std::strerror(errno)), path_, "free some space");
    sent += static_cast<size_t>(part);
  }
  return true;
}

}  // namespace gpucast::run
