// Asks `gpucast run`, over a socket of the session, how long work takes. Internal to the core.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace gpucast::vgpu {

class ClockServer {
 public:
  explicit ClockServer(std::string socket_path) : path_(std::move(socket_path)) {}

  // Sends a line and returns the line that answers it. "": the server is gone. A forked child opens a new connection.
  std::string ask(const std::string& question);

 private:
  void connect_anew();
  void disconnect();
  bool send_line(const std::string& line);

  std::string path_;
  pid_t pid_ = 0;
  int socket_ = -1;
};

}  // namespace gpucast::vgpu
