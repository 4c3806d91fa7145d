// A capture file (docs/reference/capture-format.md), made from the files that one captured process wrote into the session folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/trace.h"
#include "src/run/run_session.h"
#include "src/run/supervise.h"

namespace gpucast::run {

// A killed process leaves only the virtual GPU's log of its memory requests. Makes a history from it. False when there were none.
bool write_partial_history(const std::string& session_folder, const CapturedProcess& process, const std::string& how);

// The file that a capture is written to. It is made in the folder of `path` before the long work, so that a folder without write
// permission is an error at once. When the capture is complete, the file is renamed to `path`. An empty `path`: a file in the system's
// temporary folder.
class CaptureFile {
 public:
  // Throws Error: `path` exists (without `force`), is not a file, or cannot be written. `example`: a valid name, for the error's hint.
  CaptureFile(const std::string& path, bool force, const char* example = "train.gpucast");
  ~CaptureFile();  // removes it unless kept
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  const std::string& path() const { return current_; }
  // Gzip of header, process, history, command's end, virtual GPU, eof.
  void assemble(const std::string& session_folder, const CapturedProcess& process, const RunSettings& settings, const CommandEnd& end);
  // Renames it to the path it was opened for (without one, it stays where it is) and keeps it. Returns the path.
  std::string keep();

 private:
  std::string wanted_, current_;
  bool force_ = false;
  bool kept_ = false;
};

// "train.gpucast", 1 -> "train.rank1.gpucast".
std::string rank_path(const std::string& path, int64_t rank);
// One path for each captured process and device, all different: "train.rank1.device3.gpucast" is a process's second device.
std::vector<std::string> capture_paths(const std::string& path, const std::vector<CapturedProcess>& captured);

}  // namespace gpucast::run
