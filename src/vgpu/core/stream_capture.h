// Stream capture: the work of a captured stream becomes nodes of a graph (graphs.h). Codes and handles as in streams.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {

struct ClockWork;

enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureBroken = 2 };
struct CaptureInfo {
  int status;
  uint64_t id;
  uint64_t graph;
  const uint64_t* dependencies;  // valid until this thread's next call
  size_t dependency_count;
};
// `graph` 0: a new graph.
GPUCAST_VGPU_API int capture_begin(uint64_t stream, int mode, uint64_t graph);
GPUCAST_VGPU_API int capture_end(uint64_t stream, uint64_t* graph);
GPUCAST_VGPU_API int capture_info(uint64_t stream, CaptureInfo* info);
GPUCAST_VGPU_API int capture_update_dependencies(uint64_t stream, const uint64_t* nodes, size_t count, bool replace);
// If the stream is being captured: adds a node that holds the line, and returns true. `work` replaces the line in a run with a clock.
GPUCAST_VGPU_API bool capture_node(uint64_t stream, GraphNodeType type, std::string_view line, const ClockWork* work = nullptr);
// Adds a host function to the graph of a stream that is being captured.
GPUCAST_VGPU_API int capture_host_node(uint64_t stream, HostFunction host);
// Sets the calling thread's mode (0 global, 1 thread local, 2 relaxed) and returns the previous one.
GPUCAST_VGPU_API int capture_exchange_mode(int mode);

}  // namespace gpucast::vgpu
