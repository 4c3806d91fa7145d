#include "src/run/job_source.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "gpucast/error.h"
#include "src/run/child_process.h"

namespace gpucast::run {

namespace fs = std::filesystem;

JobSource::JobSource(const std::string& path) {
  if (path == "-") {
    file_ = Fd(dup(STDIN_FILENO));
  } else {
    file_ = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_)
      throw Error(fmt::format("cannot read the jobs: {}", std::strerror(errno)), path, "name a file of jobs, or - for standard input");
    if (fs::is_directory(path)) throw Error("the jobs are a folder", path, "name a file of jobs, or - for standard input");
  }
  (void)fcntl(file_.get(), F_SETFD, FD_CLOEXEC);
}

std::vector<JobSource::Line> JobSource::read_lines() {
  std::vector<Line> lines;
  std::array<char, 1 << 16> part;
  const ssize_t size = read(file_.get(), part.data(), part.size());
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return lines;
  if (size <= 0) {
    file_.reset();
    if (!rest_.empty()) lines.push_back({rest_, ++number_});
    return lines;
  }
  rest_.append(part.data(), static_cast<size_t>(size));
  size_t begin = 0;
  for (size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back({rest_.substr(begin, end - begin), ++number_});
  rest_.erase(0, begin);
  return lines;
}

}  // namespace gpucast::run
