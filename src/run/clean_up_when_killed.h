// When a run is killed (kill -9), its processes are ended and its files removed.
#pragma once

#include <string>

namespace gpucast::run {

// Starts a second process that outlives this one. If this one dies before the destructor runs, the second process kills all processes of
// the session in `session_folder`, and removes that folder and `file`. Make it while there is one thread, and before anything is started.
// If the second process cannot be started, nothing is cleaned up, and that is no error.
class CleanUpWhenKilled {
 public:
  CleanUpWhenKilled(const std::string& session_folder, const std::string& file);
  ~CleanUpWhenKilled();
  CleanUpWhenKilled(const CleanUpWhenKilled&) = delete;
  CleanUpWhenKilled& operator=(const CleanUpWhenKilled&) = delete;

 private:
  int pipe_ = -1;  // closed by our end, whatever it is
};

}  // namespace gpucast::run
