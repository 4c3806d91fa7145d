// Where the results of a batch go, a line each.
#pragma once

#include <string>

#include "src/run/batch_results.h"
#include "src/run/child_process.h"

namespace gpucast::run {

class ResultFile {
 public:
  // "": standard output. A file that holds results already is continued, and a line that a killed batch tore is dropped; one batch at a
  // time. Throws Error when it cannot be written, or holds anything else.
  explicit ResultFile(const std::string& path);

  // The whole line at once. False: standard output's reader has gone. Throws Error when the disk is full.
  bool add(const std::string& line);

  FormerResults former;  // what the file held

 private:
  std::string path_;
  Fd file_;
};

}  // namespace gpucast::run
