// The file that a batch writes its results to, one line each.
#pragma once

#include <string>

#include "src/run/batch_results.h"
#include "src/run/child_process.h"

namespace gpucast::run {

class ResultFile {
 public:
  // "": standard output. Results are appended to a file that contains results already; an incomplete last line, from a killed batch, is
  // removed. One batch at a time. Throws Error when the file cannot be written, or contains anything else.
  explicit ResultFile(const std::string& path);

  // Writes the whole line at once. False: the reader of standard output is gone. Throws Error when the disk is full.
  bool write_line(const std::string& line);

  FormerResults former;  // the results that the file contained

 private:
  std::string path_;
  Fd file_;
};

}  // namespace gpucast::run
