#include "src/vgpu/core/stream_capture.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/graph_state.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/operator_launches.h"
#include "src/vgpu/core/stream_state.h"

namespace gpucast::vgpu {
namespace {

thread_local int t_capture_mode = 0;
thread_local std::vector<uint64_t> t_dependencies;

}  // namespace

int capture_begin(uint64_t stream, int mode, uint64_t graph) {
  submit_held_launches();
  if (mode < 0 || mode > 2) return kInvalidValue;
  context_activate();
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  if (stream <= 1) return kCaptureUnsupported;
  if (found->capture != 0) return kIllegalState;
  if (graph == 0) {
    graph = new_graph();
  } else if (!graph_exists(graph)) {
    return kInvalidValue;
  }
  const uint64_t id = state.next_id++;
  state.captures[id] = {graph, stream, false};
  found->capture = id;
  found->dependencies.clear();
  count_captures(1);
  return kSuccess;
}

int capture_end(uint64_t stream, uint64_t* graph) {
  submit_held_launches();
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  StreamCapture* capture = state.find_capture(found->capture);
  if (capture == nullptr) return kIllegalState;
  if (capture->origin_stream != stream) {
    capture->broken = true;
    return kCaptureUnmatched;
  }
  const StreamCapture ended = state.end_capture(found->capture);
  if (graph != nullptr) *graph = ended.broken ? 0 : ended.graph;
  return ended.broken ? kCaptureInvalidated : kSuccess;
}

int capture_info(uint64_t stream, CaptureInfo* info) {
  *info = {};
  if (active_captures() == 0 && stream <= 2) return kSuccess;
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  const Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  const StreamCapture* capture = state.find_capture(found->capture);
  if (capture == nullptr) return kSuccess;
  t_dependencies = found->dependencies;
  *info = {capture->broken ? kCaptureBroken : kCaptureActive, found->capture, capture->graph, t_dependencies.data(), t_dependencies.size()};
  return kSuccess;
}

int capture_update_dependencies(uint64_t stream, const uint64_t* nodes, size_t count, bool replace) {
  submit_held_launches();
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  if (found->capture == 0) return kIllegalState;
  if (nodes == nullptr && count != 0) return kInvalidValue;
  if (replace) found->dependencies.clear();
  found->dependencies.insert(found->dependencies.end(), nodes, nodes + count);
  return kSuccess;
}

namespace {

// kIllegalState: the stream is not being captured.
int add_captured(uint64_t stream, GraphNodeType type, std::string_view line, const ClockWork* work, HostFunction host) {
  if (active_captures() == 0) return kIllegalState;
  StreamState& state = stream_state();
  const StreamLock lock(state.mutex);
  Stream* found = state.find_stream(stream);
  if (found == nullptr) return kInvalidHandle;
  const StreamCapture* capture = state.find_capture(found->capture);
  if (capture == nullptr) return kIllegalState;
  GraphNode node;
  node.type = type;
  node.line = line;
  node.captured = log_moment();
  if (work != nullptr) node.work = std::make_shared<const ClockWork>(*work);
  node.host = host;
  node.stream = stream;
  node.dependencies = std::move(found->dependencies);
  found->dependencies = {append_graph_node(capture->graph, std::move(node))};
  return kSuccess;
}

}  // namespace

bool capture_node(uint64_t stream, GraphNodeType type, std::string_view line, const ClockWork* work) {
  return add_captured(stream, type, line, work, {nullptr, nullptr}) == kSuccess;
}
int capture_host_node(uint64_t stream, HostFunction host) {
  submit_held_launches();
  return add_captured(stream, kGraphNodeHost, "", nullptr, host);
}

int capture_exchange_mode(int mode) {
  const int before = t_capture_mode;
  t_capture_mode = mode;
  return before;
}

}  // namespace gpucast::vgpu
