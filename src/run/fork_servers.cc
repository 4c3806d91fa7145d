#include "src/run/fork_servers.h"

#include <algorithm>
#include <iterator>

#include "gpucast/error.h"
#include "src/run/fork_server.h"

namespace gpucast::run {
namespace {

constexpr size_t kMaxServers = 4;

}  // namespace

ForkServer* ForkServers::find_or_start(const ServerKey& key, const std::vector<std::string>& environment, const std::string& folder,
                                       const std::function<bool(const ForkServer&)>& is_waited_for) {
  const auto known = std::find_if(servers_.begin(), servers_.end(), [&](const auto& server) { return server->key() == key; });
  if (known != servers_.end()) {
    servers_.splice(servers_.begin(), servers_, known);
  } else {
    try {
      servers_.push_front(std::make_unique<ForkServer>(key, environment, folder, libraries_));
    } catch (const Error&) {
      return nullptr;  // the run's own message will say what is wrong
    }
    end_unused(is_waited_for);
  }
  ForkServer* server = servers_.front().get();
  return server->state() == ForkServer::State::unusable ? nullptr : server;
}

void ForkServers::end_unused(const std::function<bool(const ForkServer&)>& is_waited_for) {
  for (auto server = std::prev(servers_.end()); servers_.size() > kMaxServers && server != servers_.begin();) {
    const auto before = std::prev(server);
    if (!is_waited_for(**server)) servers_.erase(server);
    server = before;
  }
}

}  // namespace gpucast::run
