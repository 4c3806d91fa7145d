// Reads the jobs of a batch from a file or standard input, as soon as each one is there.
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

  int fd() const { return file_.get(); }  // -1: all jobs have been read

  // The lines that can be read now, each with its number (from 1). Waits for the first byte only. Text after the last "\n" is a line when
  // the file ends.
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
