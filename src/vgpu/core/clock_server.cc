#include "src/vgpu/core/clock_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpucast::vgpu {

std::string ClockServer::ask(const std::string& question) {
  if (pid_ != getpid()) connect_anew();
  if (socket_ < 0 || !send_line(question + '\n')) return {};
  std::string answer;
  for (char byte = 0; byte != '\n';) {
    const ssize_t count = recv(socket_, &byte, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      disconnect();
      return {};
    }
    answer += byte;
  }
  return answer;
}

bool ClockServer::send_line(const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      disconnect();
      return false;
    }
    sent += static_cast<size_t>(count);
  }
  return true;
}

void ClockServer::connect_anew() {
  pid_ = getpid();
  socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_ < 0 || path_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path_.c_str(), path_.size());
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) disconnect();
}

void ClockServer::disconnect() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

}  // namespace gpucast::vgpu
