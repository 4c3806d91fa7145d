// A capture file (docs/reference/capture-format.md), made of what one captured process left in the session folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/trace.h"
#include "src/run/run_session.h"
#include "src/run/supervise.h"

namespace gpucast::run {

// A process that was killed leaves what it took from the card: makes a history of that. False when it took nothing.
bool write_partial_history(const std::string& session_folder, const CapturedProcess& process, const std::string& how);

// Where a capture goes: a new file in the folder of `path`, made before the long work so that a folder that cannot be written is
// known at once, and moved to its place when whole. An empty `path`: the system's temporary folder.
class CaptureFile {
 public:
  // Throws Error: `path` exists (without `force`), is no file, or cannot be written. `example`: a name that would do.
  CaptureFile(const std::string& path, bool force, const char* example = "train.gpucast");
  ~CaptureFile();  // removes it unless kept
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  const std::string& path() const { return current_; }
  // Gzip of header, process, history, command's end, virtual GPU, eof.
  void assemble(const std::string& session_folder, const CapturedProcess& process, const RunSettings& settings, const CommandEnd& end);
  // Moves it to the path it was opened for (none: where it is) and keeps it. Returns the path.
  std::string keep();

 private:
  std::string wanted_, current_;
  bool force_ = false;
  bool kept_ = false;
};

// "train.gpucast", 1 -> "train.rank1.gpucast".
std::string rank_path(const std::string& path, int64_t rank);
// The same for each captured process and device, all different: "train.rank1.device3.gpucast" is a process's second device.
std::vector<std::string> capture_paths(const std::string& path, const std::vector<CapturedProcess>& captured);

}  // namespace gpucast::run
