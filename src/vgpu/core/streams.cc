#include "src/vgpu/core/streams.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/devices.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/process.h"

namespace gpucast::vgpu {
namespace {

constexpr uint64_t kClockOperationNs = 100'000, kClockRecordNs = 1'000;

struct Stream {
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  int device = 0;
  uint64_t capture = 0;                // 0: not captured
  std::vector<uint64_t> dependencies;  // the nodes that the next captured node comes after
  bool held = false;
  std::set<uint64_t> behind;  // the unfinished work that comes before what is submitted now; finished may be among it
  std::vector<Arrival> arrivals;
  std::optional<Arrival> barrier;  // the last of them, where it is one
};

struct Event {
  unsigned flags = 0;
  bool recorded = false;
  uint64_t time_ns = 0;
  uint64_t capture = 0;  // recorded on a stream while it was captured
  std::vector<uint64_t> dependencies;
  std::set<uint64_t> behind;
  std::vector<Arrival> arrivals;
  std::optional<Arrival> barrier;  // the last of them, where it is one
};

struct Capture {
  uint64_t graph = 0, origin = 0;
  bool broken = false;
};

struct Node {
  int type = 0;
  uint64_t graph = 0, child = 0;
  uint64_t stream = 0;  // that it was captured on
  std::string line;
  LogMoment captured;
  std::shared_ptr<const ClockWork> work;
  HostFunction host{nullptr, nullptr};
  std::vector<uint64_t> dependencies;
};

struct Graph {
  std::vector<uint64_t> nodes;
  std::map<uint64_t, int64_t> user_objects;
};

struct Step {
  std::string line;
  LogMoment captured;
  std::shared_ptr<const ClockWork> work;
  HostFunction host;
  int type;
  uint64_t stream, node;
  std::vector<uint64_t> after;  // nodes of other streams
};

struct Exec {
  std::vector<Step> steps;
  std::map<uint64_t, int64_t> user_objects;
};

struct UserObject {
  HostFunction destroy;
  int64_t references;
};

struct State {
  std::mutex mutex;
  // Multiples of 16, as pointers would be: PyTorch keeps flags in the low bits of a stream.
  uint64_t next_handle = 0x5c0000001000;
  uint64_t next_id = 1;
  uint64_t records = 0;
  uint64_t next_work = 1;
  std::set<uint64_t> unfinished;  // held work
  std::unordered_map<uint64_t, Stream> streams{{0, {}}, {2, {}}};
  std::unordered_map<uint64_t, Event> events;
  std::unordered_map<uint64_t, Capture> captures;
  std::unordered_map<uint64_t, Node> nodes;
  std::unordered_map<uint64_t, Graph> graphs;
  std::unordered_map<uint64_t, Exec> execs;
  std::unordered_map<uint64_t, UserObject> user_objects;

  uint64_t new_handle() { return next_handle += 16; }
  bool running(const std::set<uint64_t>& behind) const {
    return !unfinished.empty() && std::any_of(behind.begin(), behind.end(), [this](uint64_t work) { return unfinished.contains(work); });
  }
  void finish(const std::set<uint64_t>& behind) {
    for (const uint64_t work : behind) unfinished.erase(work);
  }
  void submit(Stream& stream) {
    if (!stream.held) return;
    std::erase_if(stream.behind, [this](uint64_t work) { return !unfinished.contains(work); });
    stream.behind.insert(next_work);
    unfinished.insert(next_work++);
  }
  Stream* stream(uint64_t handle) {
    const auto found = streams.find(handle == 1 ? 0 : handle);
    return found == streams.end() ? nullptr : &found->second;
  }
  Event* event(uint64_t handle) {
    const auto found = events.find(handle);
    return found == events.end() ? nullptr : &found->second;
  }
  Graph* graph(uint64_t handle) {
    const auto found = graphs.find(handle);
    return found == graphs.end() ? nullptr : &found->second;
  }
  Node* node(uint64_t handle) {
    const auto found = nodes.find(handle);
    return found == nodes.end() ? nullptr : &found->second;
  }
};

State& state() {
  static State* const kState = new State;  // never destroyed: used until the very end
  return *kState;
}

std::atomic<bool> g_holding{false};  // some stream was ever held
std::atomic<int> g_captures{0};      // spares the lock on every launch while nothing is captured
thread_local int t_capture_mode = 0;
thread_local std::vector<uint64_t> t_dependencies;

using Lock = std::lock_guard<std::mutex>;

uint64_t add_node(State& s, uint64_t graph, Node node) {
  const uint64_t handle = s.new_handle();
  node.graph = graph;
  s.nodes.emplace(handle, std::move(node));
  s.graphs[graph].nodes.push_back(handle);
  return handle;
}

void break_capture(State& s, uint64_t capture) {
  const auto found = s.captures.find(capture);
  if (found != s.captures.end()) found->second.broken = true;
}

// Lets go of all its streams; what it was.
Capture end_capture(State& s, std::unordered_map<uint64_t, Capture>::iterator capture) {
  for (auto& [handle, stream] : s.streams) {
    if (stream.capture != capture->first) continue;
    stream.capture = 0;
    stream.dependencies.clear();
  }
  const Capture ended = capture->second;
  s.captures.erase(capture);
  g_captures.fetch_sub(1);
  return ended;
}

void append_steps(State& s, uint64_t graph, std::vector<Step>& steps, int depth) {
  constexpr int kDeepest = 64;  // a graph cannot hold itself; this only stops a program that broke that rule
  const Graph* source = s.graph(graph);
  if (source == nullptr || depth > kDeepest) return;
  for (const uint64_t handle : source->nodes) {
    const Node& node = s.nodes[handle];
    if (node.child != 0) {
      append_steps(s, node.child, steps, depth + 1);
      continue;
    }
    steps.push_back({node.line, node.captured, node.work, node.host, node.type, node.stream, handle, {}});
    for (const uint64_t before : node.dependencies) {
      const Node* other = s.node(before);
      if (other != nullptr && other->stream != node.stream) steps.back().after.push_back(before);
    }
  }
}

// The last of each sender is enough: what a rank brings comes in order.
void add_arrival(std::vector<Arrival>& arrivals, const Arrival& added) {
  for (Arrival& arrival : arrivals) {
    if (arrival.board != added.board || arrival.from != added.from || arrival.whom != added.whom) continue;
    if (arrival.number < added.number) arrival = added;
    return;
  }
  arrivals.push_back(added);
}

void wait_for(const std::vector<Arrival>& arrivals) {
  for (const Arrival& arrival : arrivals) arrival.came(true);
}

enum Waited : uint64_t { kWaitedStream = 0, kWaitedEvent = 1, kWaitedDevice = 2 };

void clock_order(std::string_view kind, uint64_t first, uint64_t second) {
  if (kind == "event_record") {
    clock_record(first, second);
  } else if (kind == "stream_wait") {
    clock_stream_wait(first, second);
  } else if (kind == "graph") {
    first == 1 ? clock_begin_graph(second, second) : clock_end_graph();
  } else if (first == kWaitedStream) {
    clock_wait_stream(second);
  } else if (first == kWaitedEvent) {
    clock_wait_event(second);
  } else {
    clock_wait_device();
  }
}

// What orders the work of streams, for whoever reads the log, or for the clock. Events that graphs bring have numbers of their own.
void log_order(const char* kind, uint64_t first, uint64_t second) {
  if (has_clock_now()) return clock_order(kind, first, second);
  log_timed("[\"" + std::string(kind) + "\"," + std::to_string(first) + "," + std::to_string(second) + "]");
}
int give(const std::vector<uint64_t>& found, uint64_t* out, size_t* count) {
  if (count == nullptr) return kInvalidValue;
  if (out != nullptr) {
    std::copy_n(found.begin(), std::min(*count, found.size()), out);
    for (size_t i = found.size(); i < *count; ++i) out[i] = 0;
  }
  *count = out == nullptr ? found.size() : std::min(*count, found.size());
  return kSuccess;
}

// Takes references away; the destructors that are due are called by the caller, without the lock.
void release(State& s, uint64_t object, int64_t references, std::vector<HostFunction>& due) {
  const auto found = s.user_objects.find(object);
  if (found == s.user_objects.end()) return;
  found->second.references -= references;
  if (found->second.references > 0) return;
  due.push_back(found->second.destroy);
  s.user_objects.erase(found);
}

void call(const std::vector<HostFunction>& functions) {
  for (const HostFunction& f : functions)
    if (f.function != nullptr) f.function(f.data);
}

// `arrivals`: what the stream still waits for, taken off it.
int finish_stream(uint64_t stream, std::vector<Arrival>* arrivals) {
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  if (found->capture == 0) {
    s.finish(found->behind);
    if (arrivals != nullptr) arrivals->swap(found->arrivals);
    return kSuccess;
  }
  break_capture(s, found->capture);
  return kCaptureUnsupported;
}

}  // namespace

// ---- Streams ----------------------------------------------------------------------------------------------------------------

uint64_t stream_create(unsigned flags, int priority) {
  context_activate();
  State& s = state();
  const Lock lock(s.mutex);
  const uint64_t handle = s.new_handle();
  Stream& stream = s.streams[handle];
  stream.flags = flags;
  stream.priority = priority;
  stream.id = s.next_id++;
  stream.device = current_device();
  return handle;
}

int stream_destroy(uint64_t stream) {
  State& s = state();
  const Lock lock(s.mutex);
  if (stream <= 2) return kInvalidHandle;
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  const auto capture = s.captures.find(found->capture);
  if (capture != s.captures.end() && capture->second.origin == stream) {
    end_capture(s, capture);
  } else if (capture != s.captures.end()) {
    capture->second.broken = true;
  }
  s.streams.erase(stream);
  return kSuccess;
}

int stream_info(uint64_t stream, StreamInfo* info) {
  State& s = state();
  const Lock lock(s.mutex);
  const Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  *info = {found->flags, found->priority, found->id, stream <= 2 ? current_device() : found->device};
  return kSuccess;
}

void stream_awaits(uint64_t stream, const Arrival& arrival) {
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return;
  add_arrival(found->arrivals, arrival);
  found->barrier.reset();
  if (arrival.barrier()) found->barrier = arrival;
}

int stream_synchronize(uint64_t stream) {
  context_activate();
  std::vector<Arrival> arrivals;
  const int code = finish_stream(stream, &arrivals);
  if (code == kSuccess) log_host_wait(stream);
  wait_for(arrivals);
  return code;
}
int stream_query(uint64_t stream) {
  bool asks_clock = false;
  {
    State& s = state();
    const Lock lock(s.mutex);
    const Stream* found = s.stream(stream);
    if (found != nullptr && found->capture == 0 && s.running(found->behind)) return kNotReady;
    asks_clock = found != nullptr && found->capture == 0 && has_clock_now();
  }
  if (asks_clock && !clock_stream_done(stream)) return kNotReady;
  return finish_stream(stream, nullptr);
}

int device_synchronize() {
  context_activate();
  finish_all_work();
  if (!has_clock_now()) log_order("host_wait", kWaitedDevice, 0);
  std::vector<Arrival> arrivals;
  State& s = state();
  {
    const Lock lock(s.mutex);
    for (auto& [handle, stream] : s.streams) {
      arrivals.insert(arrivals.end(), stream.arrivals.begin(), stream.arrivals.end());
      stream.arrivals.clear();
    }
  }
  wait_for(arrivals);
  if (g_captures.load() == 0) return kSuccess;
  const Lock lock(s.mutex);
  for (auto& [id, capture] : s.captures) capture.broken = true;
  return s.captures.empty() ? kSuccess : kCaptureUnsupported;
}

void log_host_wait(uint64_t stream) { log_order("host_wait", kWaitedStream, stream); }

void finish_all_work() {
  if (has_clock_now()) clock_wait_device();
  if (!g_holding.load()) return;
  State& s = state();
  const Lock lock(s.mutex);
  s.unfinished.clear();
}

// ---- Events -----------------------------------------------------------------------------------------------------------------

uint64_t event_create(unsigned flags) {
  context_activate();
  State& s = state();
  const Lock lock(s.mutex);
  const uint64_t handle = s.new_handle();
  s.events[handle].flags = flags;
  return handle;
}

int event_destroy(uint64_t event) {
  if (has_clock_now()) clock_forget(event);
  State& s = state();
  const Lock lock(s.mutex);
  return s.events.erase(event) == 1 ? kSuccess : kInvalidHandle;
}

int event_record(uint64_t event, uint64_t stream) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  Event* found = s.event(event);
  Stream* on = s.stream(stream);
  if (found == nullptr || on == nullptr) return kInvalidHandle;
  s.submit(*on);
  found->recorded = true;
  found->time_ns = operations() * kClockOperationNs + ++s.records * kClockRecordNs;
  found->capture = on->capture;
  found->dependencies = on->dependencies;
  found->behind = on->behind;
  found->arrivals = on->arrivals;
  found->barrier = on->barrier;
  const bool captured = on->capture != 0;
  lock.unlock();
  if (!captured) log_order("event_record", event, stream);
  return kSuccess;
}

int event_query(uint64_t event) {
  std::optional<Arrival> barrier;
  State& s = state();
  {
    const Lock lock(s.mutex);
    if (const Event* found = s.event(event)) barrier = found->barrier;
  }
  const bool waits = barrier && !barrier->came(false);
  const Lock lock(s.mutex);
  const Event* found = s.event(event);
  if (found == nullptr) return kInvalidHandle;
  if (waits) return kNotReady;
  if (found->capture == 0 || !s.captures.contains(found->capture)) {
    if (has_clock_now() && !clock_event_done(event)) return kNotReady;
    return s.running(found->behind) ? kNotReady : kSuccess;
  }
  break_capture(s, found->capture);
  return kCapturedEvent;
}

int event_synchronize(uint64_t event) {
  std::vector<Arrival> arrivals;
  {
    State& s = state();
    const Lock lock(s.mutex);
    Event* found = s.event(event);
    if (found != nullptr && found->capture == 0) {
      s.finish(found->behind);
      arrivals.swap(found->arrivals);
    }
  }
  wait_for(arrivals);
  if (has_clock_now()) clock_wait_event(event);
  const int code = event_query(event);
  if (code == kSuccess && !has_clock_now()) log_order("host_wait", kWaitedEvent, event);
  return code;
}

int stream_wait_event(uint64_t stream, uint64_t event) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  Stream* waiting = s.stream(stream);
  const Event* found = s.event(event);
  if (waiting == nullptr || found == nullptr) return kInvalidHandle;
  if (found->capture == 0 || !s.captures.contains(found->capture)) {
    if (s.running(found->behind)) waiting->behind.insert(found->behind.begin(), found->behind.end());
    for (const Arrival& arrival : found->arrivals) add_arrival(waiting->arrivals, arrival);
    const bool plain = waiting->capture == 0 && found->recorded;
    lock.unlock();
    if (plain) log_order("stream_wait", stream, event);
    return kSuccess;
  }
  if (stream <= 1) {  // the default stream cannot take part in a capture
    break_capture(s, found->capture);
    return kCaptureImplicit;
  }
  if (waiting->capture == 0) {
    waiting->capture = found->capture;
    waiting->dependencies.clear();
  } else if (waiting->capture != found->capture) {
    break_capture(s, found->capture);
    break_capture(s, waiting->capture);
    return kCaptureUnsupported;
  }
  for (const uint64_t node : found->dependencies)
    if (std::find(waiting->dependencies.begin(), waiting->dependencies.end(), node) == waiting->dependencies.end())
      waiting->dependencies.push_back(node);
  return kSuccess;
}

int event_elapsed(uint64_t from, uint64_t to, float* elapsed_ms) {
  if (elapsed_ms == nullptr) return kInvalidValue;
  State& s = state();
  const Lock lock(s.mutex);
  const Event *first = s.event(from), *last = s.event(to);
  if (first == nullptr || last == nullptr || !first->recorded || !last->recorded) return kInvalidHandle;
  if ((first->flags | last->flags) & kEventDisableTiming) return kInvalidHandle;
  if (has_clock_now()) {
    const double first_ns = clock_event_ns(from), last_ns = clock_event_ns(to);
    if (first_ns < 0 || last_ns < 0) return kNotReady;
    *elapsed_ms = static_cast<float>((last_ns - first_ns) / 1e6);
    return kSuccess;
  }
  *elapsed_ms = static_cast<float>((static_cast<double>(last->time_ns) - static_cast<double>(first->time_ns)) / 1e6);
  return kSuccess;
}

// ---- Capture ----------------------------------------------------------------------------------------------------------------

int capture_begin(uint64_t stream, int mode, uint64_t graph) {
  if (mode < 0 || mode > 2) return kInvalidValue;
  context_activate();
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  if (stream <= 1) return kCaptureUnsupported;
  if (found->capture != 0) return kIllegalState;
  if (graph == 0) {
    graph = s.new_handle();
    s.graphs[graph];
  } else if (s.graph(graph) == nullptr) {
    return kInvalidValue;
  }
  const uint64_t id = s.next_id++;
  s.captures[id] = {graph, stream, false};
  found->capture = id;
  found->dependencies.clear();
  g_captures.fetch_add(1);
  return kSuccess;
}

int capture_end(uint64_t stream, uint64_t* graph) {
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  const auto capture = s.captures.find(found->capture);
  if (capture == s.captures.end()) return kIllegalState;
  if (capture->second.origin != stream) {
    capture->second.broken = true;
    return kCaptureUnmatched;
  }
  const Capture ended = end_capture(s, capture);
  if (graph != nullptr) *graph = ended.broken ? 0 : ended.graph;
  return ended.broken ? kCaptureInvalidated : kSuccess;
}

int capture_info(uint64_t stream, CaptureInfo* info) {
  *info = {};
  if (g_captures.load(std::memory_order_relaxed) == 0 && stream <= 2) return kSuccess;
  State& s = state();
  const Lock lock(s.mutex);
  const Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  const auto capture = s.captures.find(found->capture);
  if (capture == s.captures.end()) return kSuccess;
  t_dependencies = found->dependencies;
  *info = {capture->second.broken ? kCaptureBroken : kCaptureActive, capture->first, capture->second.graph, t_dependencies.data(),
           t_dependencies.size()};
  return kSuccess;
}

int capture_update_dependencies(uint64_t stream, const uint64_t* nodes, size_t count, bool replace) {
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  if (found->capture == 0) return kIllegalState;
  if (nodes == nullptr && count != 0) return kInvalidValue;
  if (replace) found->dependencies.clear();
  found->dependencies.insert(found->dependencies.end(), nodes, nodes + count);
  return kSuccess;
}

namespace {

// kIllegalState: the stream is not being captured.
int add_captured(uint64_t stream, int type, std::string_view line, const ClockWork* work, HostFunction host) {
  if (g_captures.load(std::memory_order_relaxed) == 0) return kIllegalState;
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  const auto capture = s.captures.find(found->capture);
  if (capture == s.captures.end()) return kIllegalState;
  Node node;
  node.type = type;
  node.line = line;
  node.captured = log_moment();
  if (work != nullptr) node.work = std::make_shared<const ClockWork>(*work);
  node.host = host;
  node.stream = stream;
  node.dependencies = std::move(found->dependencies);
  found->dependencies = {add_node(s, capture->second.graph, std::move(node))};
  return kSuccess;
}

}  // namespace

bool capture_node(uint64_t stream, int type, std::string_view line, const ClockWork* work) {
  return add_captured(stream, type, line, work, {nullptr, nullptr}) == kSuccess;
}
int capture_host_node(uint64_t stream, HostFunction host) { return add_captured(stream, kGraphNodeHost, "", nullptr, host); }

void call_host(HostFunction host, uint64_t stream) {
  if (has_clock_now()) {
    clock_call_host(host, stream);
  } else {
    host.function(host.data);
  }
}

int capture_exchange_mode(int mode) {
  const int before = t_capture_mode;
  t_capture_mode = mode;
  return before;
}

// ---- Graphs -----------------------------------------------------------------------------------------------------------------

uint64_t graph_create() {
  context_activate();
  State& s = state();
  const Lock lock(s.mutex);
  const uint64_t handle = s.new_handle();
  s.graphs[handle];
  return handle;
}

int graph_destroy(uint64_t graph) {
  std::vector<HostFunction> due;
  {
    State& s = state();
    const Lock lock(s.mutex);
    const auto found = s.graphs.find(graph);
    if (found == s.graphs.end()) return kInvalidValue;
    for (const uint64_t node : found->second.nodes) s.nodes.erase(node);
    for (const auto& [object, references] : found->second.user_objects) release(s, object, references, due);
    s.graphs.erase(found);
  }
  call(due);
  return kSuccess;
}

int graph_clone(uint64_t graph, uint64_t* clone) {
  State& s = state();
  const Lock lock(s.mutex);
  if (clone == nullptr || s.graph(graph) == nullptr) return kInvalidValue;
  *clone = s.new_handle();
  s.graphs[*clone];
  const Graph source = *s.graph(graph);
  std::map<uint64_t, uint64_t> copy_of;
  for (const uint64_t handle : source.nodes) {
    Node node = s.nodes[handle];
    for (uint64_t& dependency : node.dependencies)
      if (copy_of.contains(dependency)) dependency = copy_of[dependency];
    copy_of[handle] = add_node(s, *clone, std::move(node));
  }
  for (const auto& [object, references] : source.user_objects) {
    const auto found = s.user_objects.find(object);
    if (found != s.user_objects.end()) found->second.references += references;
  }
  s.graphs[*clone].user_objects = source.user_objects;
  return kSuccess;
}

int graph_add_node(uint64_t graph, const uint64_t* dependencies, size_t count, int type, std::string_view line, uint64_t child,
                   HostFunction host, uint64_t* node) {
  State& s = state();
  const Lock lock(s.mutex);
  if (s.graph(graph) == nullptr || node == nullptr || (dependencies == nullptr && count != 0)) return kInvalidValue;
  for (size_t i = 0; i < count; ++i)
    if (s.node(dependencies[i]) == nullptr) return kInvalidValue;
  Node added;
  added.type = type;
  added.line = line;
  added.child = child;
  added.host = host;
  added.dependencies.assign(dependencies, dependencies + count);
  *node = add_node(s, graph, std::move(added));
  return kSuccess;
}

int graph_destroy_node(uint64_t node) {
  State& s = state();
  const Lock lock(s.mutex);
  const Node* found = s.node(node);
  if (found == nullptr) return kInvalidValue;
  if (Graph* graph = s.graph(found->graph)) {
    std::erase(graph->nodes, node);
    for (const uint64_t other : graph->nodes) std::erase(s.nodes[other].dependencies, node);
  }
  s.nodes.erase(node);
  return kSuccess;
}

int graph_node_type(uint64_t node, int* type) {
  State& s = state();
  const Lock lock(s.mutex);
  const Node* found = s.node(node);
  if (found == nullptr || type == nullptr) return kInvalidValue;
  *type = found->type;
  return kSuccess;
}

int graph_nodes(uint64_t graph, bool roots_only, uint64_t* nodes, size_t* count) {
  State& s = state();
  const Lock lock(s.mutex);
  const Graph* found = s.graph(graph);
  if (found == nullptr) return kInvalidValue;
  std::vector<uint64_t> wanted;
  for (const uint64_t node : found->nodes)
    if (!roots_only || s.nodes[node].dependencies.empty()) wanted.push_back(node);
  return give(wanted, nodes, count);
}

int graph_node_dependencies(uint64_t node, uint64_t* nodes, size_t* count) {
  State& s = state();
  const Lock lock(s.mutex);
  const Node* found = s.node(node);
  return found == nullptr ? kInvalidValue : give(found->dependencies, nodes, count);
}

int graph_node_dependents(uint64_t node, uint64_t* nodes, size_t* count) {
  State& s = state();
  const Lock lock(s.mutex);
  const Node* found = s.node(node);
  const Graph* graph = found == nullptr ? nullptr : s.graph(found->graph);
  if (graph == nullptr) return kInvalidValue;
  std::vector<uint64_t> wanted;
  for (const uint64_t other : graph->nodes) {
    const auto& dependencies = s.nodes[other].dependencies;
    if (std::find(dependencies.begin(), dependencies.end(), node) != dependencies.end()) wanted.push_back(other);
  }
  return give(wanted, nodes, count);
}

int graph_edges(uint64_t graph, uint64_t* from, uint64_t* to, size_t* count) {
  State& s = state();
  const Lock lock(s.mutex);
  const Graph* found = s.graph(graph);
  if (found == nullptr || count == nullptr) return kInvalidValue;
  std::vector<uint64_t> first, second;
  for (const uint64_t node : found->nodes) {
    for (const uint64_t dependency : s.nodes[node].dependencies) {
      first.push_back(dependency);
      second.push_back(node);
    }
  }
  size_t room = *count;
  give(first, from, &room);
  return give(second, to, count);
}

int graph_change_dependencies(uint64_t graph, const uint64_t* from, const uint64_t* to, size_t count, bool add) {
  State& s = state();
  const Lock lock(s.mutex);
  if (s.graph(graph) == nullptr || (count != 0 && (from == nullptr || to == nullptr))) return kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    Node* node = s.node(to[i]);
    if (node == nullptr || s.node(from[i]) == nullptr) return kInvalidValue;
    std::erase(node->dependencies, from[i]);
    if (add) node->dependencies.push_back(from[i]);
  }
  return kSuccess;
}

int graph_instantiate(uint64_t graph, uint64_t* exec) {
  State& s = state();
  const Lock lock(s.mutex);
  const Graph* found = s.graph(graph);
  if (found == nullptr || exec == nullptr) return kInvalidValue;
  *exec = s.new_handle();
  Exec& made = s.execs[*exec];
  append_steps(s, graph, made.steps, 0);
  made.user_objects = found->user_objects;
  for (const auto& [object, references] : made.user_objects) {
    const auto user = s.user_objects.find(object);
    if (user != s.user_objects.end()) user->second.references += references;
  }
  return kSuccess;
}

int graph_exec_update(uint64_t exec, uint64_t graph) {
  State& s = state();
  const Lock lock(s.mutex);
  const auto found = s.execs.find(exec);
  if (found == s.execs.end() || s.graph(graph) == nullptr) return kInvalidValue;
  found->second.steps.clear();
  append_steps(s, graph, found->second.steps, 0);
  return kSuccess;
}

int graph_exec_destroy(uint64_t exec) {
  std::vector<HostFunction> due;
  {
    State& s = state();
    const Lock lock(s.mutex);
    const auto found = s.execs.find(exec);
    if (found == s.execs.end()) return kInvalidValue;
    for (const auto& [object, references] : found->second.user_objects) release(s, object, references, due);
    s.execs.erase(found);
  }
  call(due);
  return kSuccess;
}

int graph_launch(uint64_t exec, uint64_t stream) {
  std::vector<Step> steps;
  {
    State& s = state();
    const Lock lock(s.mutex);
    const auto found = s.execs.find(exec);
    if (found == s.execs.end()) return kInvalidValue;
    if (s.stream(stream) == nullptr) return kInvalidHandle;
    steps = found->second.steps;
  }
  // Its work comes after all of the stream's, on the streams that it was captured on, and the stream's next work after all of it.
  std::set<uint64_t> streams, waited;
  for (const Step& step : steps) {
    if (step.stream != stream) streams.insert(step.stream);
    waited.insert(step.after.begin(), step.after.end());
  }
  CaptureInfo info;
  const bool plain = capture_info(stream, &info) == kSuccess && info.status == kCaptureNone;
  if (plain) {
    log_order("graph", 1, stream);
    log_order("event_record", exec, stream);
    for (const uint64_t other : streams) log_order("stream_wait", other, exec);
  }
  for (const Step& step : steps) {
    if (capture_node(stream, step.type, step.line, step.work.get())) continue;
    for (const uint64_t node : step.after) log_order("stream_wait", step.stream, node);
    if (step.work) {
      clock_submit(*step.work, step.stream, "cudaGraphLaunch");
    } else if (!step.line.empty() && !has_clock_now()) {
      log_captured_at(step.captured);
      log_timed(step.line);
      count_operation();
    }
    if (waited.contains(step.node)) log_order("event_record", step.node, step.stream);
    if (step.host.function != nullptr) call_host(step.host, step.stream);
  }
  if (plain) {
    for (const uint64_t other : streams) {
      log_order("event_record", exec, other);
      log_order("stream_wait", stream, exec);
    }
    log_order("graph", 0, stream);
  }
  device_written();
  return kSuccess;
}

uint64_t user_object_create(HostFunction destroy, unsigned references) {
  State& s = state();
  const Lock lock(s.mutex);
  const uint64_t handle = s.new_handle();
  s.user_objects[handle] = {destroy, references};
  return handle;
}

int user_object_change(uint64_t object, int64_t references) {
  std::vector<HostFunction> due;
  {
    State& s = state();
    const Lock lock(s.mutex);
    if (!s.user_objects.contains(object)) return kInvalidValue;
    release(s, object, -references, due);
  }
  call(due);
  return kSuccess;
}

int graph_retain_user_object(uint64_t graph, uint64_t object, unsigned references, bool move) {
  State& s = state();
  const Lock lock(s.mutex);
  Graph* found = s.graph(graph);
  const auto user = s.user_objects.find(object);
  if (found == nullptr || user == s.user_objects.end()) return kInvalidValue;
  found->user_objects[object] += references;
  if (!move) user->second.references += references;
  return kSuccess;
}

int graph_release_user_object(uint64_t graph, uint64_t object, unsigned references) {
  std::vector<HostFunction> due;
  {
    State& s = state();
    const Lock lock(s.mutex);
    Graph* found = s.graph(graph);
    if (found == nullptr || !found->user_objects.contains(object) || found->user_objects[object] < references) return kInvalidValue;
    found->user_objects[object] -= references;
    if (found->user_objects[object] == 0) found->user_objects.erase(object);
    release(s, object, references, due);
  }
  call(due);
  return kSuccess;
}

void lock_streams() { state().mutex.lock(); }
void unlock_streams() { state().mutex.unlock(); }

}  // namespace gpucast::vgpu

using namespace gpucast::vgpu;

int gpucast_vgpu_hold_stream(uint64_t stream) {
  context_activate();
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  g_holding.store(true);
  found->held = true;
  return kSuccess;
}

int gpucast_vgpu_finish_stream(uint64_t stream) {
  State& s = state();
  const Lock lock(s.mutex);
  Stream* found = s.stream(stream);
  if (found == nullptr) return kInvalidHandle;
  found->held = false;
  s.finish(found->behind);
  return kSuccess;
}
