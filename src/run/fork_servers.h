// The fork servers of a batch: one for each key (fork_server.h) among its jobs, up to a limit.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/run/fork_server.h"

namespace gpucast::run {

class ForkServers {
 public:
  explicit ForkServers(std::string library_folder) : libraries_(std::move(library_folder)) {}

  // The server with this key. Without one, starts it in `folder` with `environment`. nullptr: it cannot be started or used, and the job
  // must run in a fresh Python. When there are too many servers, the least recently used ones are ended, unless jobs wait for them.
  ForkServer* find_or_start(const ServerKey& key, const std::vector<std::string>& environment, const std::string& folder,
                            const std::function<bool(const ForkServer&)>& is_waited_for);

  const std::list<std::unique_ptr<ForkServer>>& servers() const { return servers_; }
  void end_all() { servers_.clear(); }

 private:
  void end_unused(const std::function<bool(const ForkServer&)>& is_waited_for);

  std::string libraries_;
  std::list<std::unique_ptr<ForkServer>> servers_;  // the most recently used first
};

}  // namespace gpucast::run
