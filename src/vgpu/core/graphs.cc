#include "src/vgpu/core/graphs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/graph_state.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/operator_launches.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/stream_order.h"
#include "src/vgpu/core/stream_state.h"
#include "src/vgpu/core/user_objects.h"

namespace gpucast::vgpu {
namespace {

struct Graph {
  std::vector<uint64_t> nodes;
  std::map<uint64_t, int64_t> user_objects;  // the number of references that the graph holds
};

// A node of an executable graph.
struct GraphStep {
  std::string line;
  LogMoment captured;
  std::shared_ptr<const ClockWork> work;
  HostFunction host;
  GraphNodeType type;
  uint64_t stream, node;
  std::vector<uint64_t> after;  // nodes of other streams
};

struct GraphExec {
  std::vector<GraphStep> steps;
  std::map<uint64_t, int64_t> user_objects;
};

struct GraphTables {
  std::unordered_map<uint64_t, GraphNode> nodes;
  std::unordered_map<uint64_t, Graph> graphs;
  std::unordered_map<uint64_t, GraphExec> execs;
};

// Guarded by the lock of streams.
GraphTables& tables() {
  static GraphTables* const kTables = new GraphTables;  // never destroyed: used until the very end
  return *kTables;
}

Graph* find_graph(uint64_t handle) {
  const auto found = tables().graphs.find(handle);
  return found == tables().graphs.end() ? nullptr : &found->second;
}
GraphNode* find_node(uint64_t handle) {
  const auto found = tables().nodes.find(handle);
  return found == tables().nodes.end() ? nullptr : &found->second;
}

void append_steps(uint64_t graph, std::vector<GraphStep>& steps, int depth) {
  constexpr int kDeepest = 64;  // a graph cannot contain itself; this stops a program that broke that rule
  const Graph* source = find_graph(graph);
  if (source == nullptr || depth > kDeepest) return;
  for (const uint64_t handle : source->nodes) {
    const GraphNode& node = tables().nodes[handle];
    if (node.child != 0) {
      append_steps(node.child, steps, depth + 1);
      continue;
    }
    steps.push_back({node.line, node.captured, node.work, node.host, node.type, node.stream, handle, {}});
    for (const uint64_t before : node.dependencies) {
      const GraphNode* other = find_node(before);
      if (other != nullptr && other->stream != node.stream) steps.back().after.push_back(before);
    }
  }
}

int give_handles(const std::vector<uint64_t>& handles, uint64_t* out, size_t* count) {
  if (count == nullptr) return kInvalidValue;
  if (out != nullptr) {
    std::copy_n(handles.begin(), std::min(*count, handles.size()), out);
    for (size_t i = handles.size(); i < *count; ++i) out[i] = 0;
  }
  *count = out == nullptr ? handles.size() : std::min(*count, handles.size());
  return kSuccess;
}

}  // namespace

// ---- Under the lock of streams ------------------------------------------------------------------------------------------------

uint64_t new_graph() {
  const uint64_t handle = stream_state().new_handle();
  tables().graphs[handle];
  return handle;
}

bool graph_exists(uint64_t graph) { return find_graph(graph) != nullptr; }

uint64_t append_graph_node(uint64_t graph, GraphNode node) {
  const uint64_t handle = stream_state().new_handle();
  node.graph = graph;
  tables().nodes.emplace(handle, std::move(node));
  tables().graphs[graph].nodes.push_back(handle);
  return handle;
}

// ---- Graphs -------------------------------------------------------------------------------------------------------------------

uint64_t graph_create() {
  context_activate();
  const StreamLock lock(stream_state().mutex);
  return new_graph();
}

int graph_destroy(uint64_t graph) {
  std::vector<HostFunction> due;
  {
    const StreamLock lock(stream_state().mutex);
    const auto found = tables().graphs.find(graph);
    if (found == tables().graphs.end()) return kInvalidValue;
    for (const uint64_t node : found->second.nodes) tables().nodes.erase(node);
    for (const auto& [object, references] : found->second.user_objects) user_object_release(object, references, due);
    tables().graphs.erase(found);
  }
  call_all(due);
  return kSuccess;
}

int graph_clone(uint64_t graph, uint64_t* clone) {
  const StreamLock lock(stream_state().mutex);
  if (clone == nullptr || find_graph(graph) == nullptr) return kInvalidValue;
  *clone = new_graph();
  const Graph source = *find_graph(graph);
  std::map<uint64_t, uint64_t> copy_of;
  for (const uint64_t handle : source.nodes) {
    GraphNode node = tables().nodes[handle];
    for (uint64_t& dependency : node.dependencies)
      if (copy_of.contains(dependency)) dependency = copy_of[dependency];
    copy_of[handle] = append_graph_node(*clone, std::move(node));
  }
  for (const auto& [object, references] : source.user_objects) user_object_retain(object, references);
  tables().graphs[*clone].user_objects = source.user_objects;
  return kSuccess;
}

int graph_add_node(uint64_t graph, const uint64_t* dependencies, size_t count, GraphNodeType type, std::string_view line, uint64_t child,
                   HostFunction host, uint64_t* node) {
  const StreamLock lock(stream_state().mutex);
  if (find_graph(graph) == nullptr || node == nullptr || (dependencies == nullptr && count != 0)) return kInvalidValue;
  for (size_t i = 0; i < count; ++i)
    if (find_node(dependencies[i]) == nullptr) return kInvalidValue;
  GraphNode added;
  added.type = type;
  added.line = line;
  added.child = child;
  added.host = host;
  added.dependencies.assign(dependencies, dependencies + count);
  *node = append_graph_node(graph, std::move(added));
  return kSuccess;
}

int graph_destroy_node(uint64_t node) {
  const StreamLock lock(stream_state().mutex);
  const GraphNode* found = find_node(node);
  if (found == nullptr) return kInvalidValue;
  if (Graph* graph = find_graph(found->graph)) {
    std::erase(graph->nodes, node);
    for (const uint64_t other : graph->nodes) std::erase(tables().nodes[other].dependencies, node);
  }
  tables().nodes.erase(node);
  return kSuccess;
}

int graph_node_type(uint64_t node, int* type) {
  const StreamLock lock(stream_state().mutex);
  const GraphNode* found = find_node(node);
  if (found == nullptr || type == nullptr) return kInvalidValue;
  *type = found->type;
  return kSuccess;
}

int graph_nodes(uint64_t graph, bool roots_only, uint64_t* nodes, size_t* count) {
  const StreamLock lock(stream_state().mutex);
  const Graph* found = find_graph(graph);
  if (found == nullptr) return kInvalidValue;
  std::vector<uint64_t> wanted;
  for (const uint64_t node : found->nodes)
    if (!roots_only || tables().nodes[node].dependencies.empty()) wanted.push_back(node);
  return give_handles(wanted, nodes, count);
}

int graph_node_dependencies(uint64_t node, uint64_t* nodes, size_t* count) {
  const StreamLock lock(stream_state().mutex);
  const GraphNode* found = find_node(node);
  return found == nullptr ? kInvalidValue : give_handles(found->dependencies, nodes, count);
}

int graph_node_dependents(uint64_t node, uint64_t* nodes, size_t* count) {
  const StreamLock lock(stream_state().mutex);
  const GraphNode* found = find_node(node);
  const Graph* graph = found == nullptr ? nullptr : find_graph(found->graph);
  if (graph == nullptr) return kInvalidValue;
  std::vector<uint64_t> wanted;
  for (const uint64_t other : graph->nodes) {
    const auto& dependencies = tables().nodes[other].dependencies;
    if (std::find(dependencies.begin(), dependencies.end(), node) != dependencies.end()) wanted.push_back(other);
  }
  return give_handles(wanted, nodes, count);
}

int graph_edges(uint64_t graph, uint64_t* from, uint64_t* to, size_t* count) {
  const StreamLock lock(stream_state().mutex);
  const Graph* found = find_graph(graph);
  if (found == nullptr || count == nullptr) return kInvalidValue;
  std::vector<uint64_t> first, second;
  for (const uint64_t node : found->nodes) {
    for (const uint64_t dependency : tables().nodes[node].dependencies) {
      first.push_back(dependency);
      second.push_back(node);
    }
  }
  size_t room = *count;
  give_handles(first, from, &room);
  return give_handles(second, to, count);
}

int graph_change_dependencies(uint64_t graph, const uint64_t* from, const uint64_t* to, size_t count, bool add) {
  const StreamLock lock(stream_state().mutex);
  if (find_graph(graph) == nullptr || (count != 0 && (from == nullptr || to == nullptr))) return kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = find_node(to[i]);
    if (node == nullptr || find_node(from[i]) == nullptr) return kInvalidValue;
    std::erase(node->dependencies, from[i]);
    if (add) node->dependencies.push_back(from[i]);
  }
  return kSuccess;
}

int graph_instantiate(uint64_t graph, uint64_t* exec) {
  const StreamLock lock(stream_state().mutex);
  const Graph* found = find_graph(graph);
  if (found == nullptr || exec == nullptr) return kInvalidValue;
  *exec = stream_state().new_handle();
  GraphExec& made = tables().execs[*exec];
  append_steps(graph, made.steps, 0);
  made.user_objects = found->user_objects;
  for (const auto& [object, references] : made.user_objects) user_object_retain(object, references);
  return kSuccess;
}

int graph_exec_update(uint64_t exec, uint64_t graph) {
  const StreamLock lock(stream_state().mutex);
  const auto found = tables().execs.find(exec);
  if (found == tables().execs.end() || find_graph(graph) == nullptr) return kInvalidValue;
  found->second.steps.clear();
  append_steps(graph, found->second.steps, 0);
  return kSuccess;
}

int graph_exec_destroy(uint64_t exec) {
  std::vector<HostFunction> due;
  {
    const StreamLock lock(stream_state().mutex);
    const auto found = tables().execs.find(exec);
    if (found == tables().execs.end()) return kInvalidValue;
    for (const auto& [object, references] : found->second.user_objects) user_object_release(object, references, due);
    tables().execs.erase(found);
  }
  call_all(due);
  return kSuccess;
}

int graph_launch(uint64_t exec, uint64_t stream) {
  submit_held_launches();
  std::vector<GraphStep> steps;
  {
    const StreamLock lock(stream_state().mutex);
    const auto found = tables().execs.find(exec);
    if (found == tables().execs.end()) return kInvalidValue;
    if (stream_state().find_stream(stream) == nullptr) return kInvalidHandle;
    steps = found->second.steps;
  }
  // The graph's work starts after all earlier work of the stream, on the streams of its capture. The stream's later work starts after all
  // of it.
  std::set<uint64_t> streams, waited;
  for (const GraphStep& step : steps) {
    if (step.stream != stream) streams.insert(step.stream);
    waited.insert(step.after.begin(), step.after.end());
  }
  CaptureInfo info;
  const bool plain = capture_info(stream, &info) == kSuccess && info.status == kCaptureNone;
  if (plain) {
    order_graph_begin(exec, stream);
    order_event_record(exec, stream);
    for (const uint64_t other : streams) order_stream_wait(other, exec);
  }
  for (const GraphStep& step : steps) {
    if (capture_node(stream, step.type, step.line, step.work.get())) continue;
    for (const uint64_t node : step.after) order_stream_wait(step.stream, node);
    if (step.work) {
      clock_submit(*step.work, step.stream, "cudaGraphLaunch");
    } else if (!step.line.empty() && !has_clock_now()) {
      log_captured_at(step.captured);
      log_timed(step.line);
      count_operation();
    }
    if (waited.contains(step.node)) order_event_record(step.node, step.stream);
    if (step.host.function != nullptr) call_host(step.host, step.stream);
  }
  if (plain) {
    for (const uint64_t other : streams) {
      order_event_record(exec, other);
      order_stream_wait(stream, exec);
    }
    order_graph_end(stream);
  }
  device_written();
  return kSuccess;
}

// ---- User objects of graphs -----------------------------------------------------------------------------------------------------

int graph_retain_user_object(uint64_t graph, uint64_t object, unsigned references, bool move) {
  const StreamLock lock(stream_state().mutex);
  Graph* found = find_graph(graph);
  if (found == nullptr || !user_object_exists(object)) return kInvalidValue;
  found->user_objects[object] += references;
  if (!move) user_object_retain(object, references);
  return kSuccess;
}

int graph_release_user_object(uint64_t graph, uint64_t object, unsigned references) {
  std::vector<HostFunction> due;
  {
    const StreamLock lock(stream_state().mutex);
    Graph* found = find_graph(graph);
    if (found == nullptr || !found->user_objects.contains(object) || found->user_objects[object] < references) return kInvalidValue;
    found->user_objects[object] -= references;
    if (found->user_objects[object] == 0) found->user_objects.erase(object);
    user_object_release(object, references, due);
  }
  call_all(due);
  return kSuccess;
}

}  // namespace gpucast::vgpu
