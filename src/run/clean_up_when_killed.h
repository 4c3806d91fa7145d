// What a run leaves should it be killed (kill -9) is ended and removed all the same.
#pragma once

#include <string>

namespace gpucast::run {

// A process of its own that outlives this one. Should this one die before the destructor, it kills what was started under
// `session_folder` and removes that folder and `file`. To be made while there is one thread, and before anything is started. Where it
// cannot be made, there is none.
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
