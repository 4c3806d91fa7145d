// The jobs of a batch as they come, from a file or from standard input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/run/child_process.h"

namespace gpucast::run {

class JobSource {
 public:
  // "-": standard input. Throws Error when there is nothing to read.
  explicit JobSource(const std::string& path);

  int fd() const { return file_.get(); }  // -1: all have been read

  // The lines that can be read now, without waiting longer than for the first byte, each with its number from 1 on. What stands after the
  // last "\n" is a line at the end of the file.
  struct Line {
    std::string text;
    int64_t number = 0;
  };
  std::vector<Line> read_lines();

 private:
  Fd file_;
  std::string rest_;
  int64_t number_ = 0;
};

}  // namespace gpucast::run
