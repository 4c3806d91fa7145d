// Nodes of graphs, added by captures. The lock of streams (stream_state.h) guards them. Internal to the core.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

struct GraphNode {
  GraphNodeType type = kGraphNodeKernel;
  uint64_t graph = 0, child = 0;
  uint64_t stream = 0;  // the stream it was captured on
  std::string line;
  LogMoment captured;
  std::shared_ptr<const ClockWork> work;
  HostFunction host{nullptr, nullptr};
  std::vector<uint64_t> dependencies;
};

uint64_t new_graph();
bool graph_exists(uint64_t graph);
uint64_t append_graph_node(uint64_t graph, GraphNode node);

}  // namespace gpucast::vgpu
