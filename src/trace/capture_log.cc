#include "src/trace/capture_log.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/hex.h"
#include "src/base/json.h"
#include "src/trace/convolutions.h"
#include "src/trace/read_arguments.h"

namespace gpucast::capture {
namespace {

bool add_event(Reading& reading, const VgpuEvent& event) {
  if (event.size_bytes > kMostBytes || event.size_bytes < -kMostBytes) return false;
  reading.trace.vgpu_events.push_back(event);
  return true;
}

bool read_name(Reading& reading, Elements& elements, StringId* out) {
  std::string_view name;
  if (!elements.text(&name)) return false;
  *out = reading.trace.strings.intern(name);
  return true;
}

constexpr size_t kMostParameterDigits = size_t{64} << 10;  // a kernel has at most 32 KiB of parameters

bool read_device_memory(Reading& reading, Elements& elements, VgpuEventKind kind) {
  VgpuEvent event;
  event.kind = kind;
  return elements.address(&event.address) && elements.size(&event.size_bytes) && add_event(reading, event);
}

void add_work(Reading& reading, Work work) {
  LogState& log = reading.log;
  work.thread = log.thread;
  work.mark = log.mark;
  work.captured_ns = log.captured_ns;
  work.captured_thread = log.captured_thread;
  log.captured_ns = -1;
  reading.trace.observed.work.push_back(std::move(work));
}

bool is_time(simdjson::simdjson_result<od::value> value, int64_t* out) {
  return value.get_int64().get(*out) == simdjson::SUCCESS && *out >= 0 && *out < kMostNs;
}

bool read_launch(Reading& reading, Elements& elements, const Arguments& arguments) {
  Work work;
  work.parameters = arguments.parameters;
  work.values = arguments.values;
  int64_t number = 0;
  if (!elements.integer(&number)) return false;
  const auto known = reading.log.kernel_names.find(number);
  if (known != reading.log.kernel_names.end()) {
    work.name = known->second.name;
    work.compiled = known->second.compiled;
  }
  for (std::array<uint32_t, 3>* sizes : {&work.grid, &work.block}) {
    for (uint32_t& size : *sizes) {
      if (!elements.size(&number) || number > UINT32_MAX) return false;
      size = static_cast<uint32_t>(number);
    }
  }
  if (!elements.size(&work.size_bytes) || work.size_bytes > kMostBytes || !elements.address(&work.stream)) return false;
  auto last = elements.next();
  od::array pointers;
  if (last.get_array().get(pointers) == simdjson::SUCCESS) {
    for (auto entry : pointers) {
      uint64_t pointer = 0;
      if (entry.get_uint64().get(pointer) != simdjson::SUCCESS) return false;
      work.pointers.push_back(pointer);
    }
    last = elements.next();
  }
  if (!is_time(last, &work.time_ns)) return false;
  add_work(reading, std::move(work));
  return true;
}

// Returns an index in ObservedStep::call_arguments. Most calls repeat the arguments of others, so each text is parsed once.
bool find_arguments(Reading& reading, std::string_view json, uint32_t* number) {
  auto& numbers = reading.log.call_arguments;
  if (const auto known = numbers.find(json); known != numbers.end()) {
    *number = known->second;
    return true;
  }
  const Json object = Json::parse(json);
  if (!object.is_object()) return false;
  std::vector<CallArguments>& all = reading.trace.observed.call_arguments;
  *number = static_cast<uint32_t>(all.size());
  all.push_back(call_arguments(object));
  numbers.emplace(json, *number);
  return true;
}

bool read_library_call(Reading& reading, Elements& elements) {
  Work work;
  work.kind = WorkKind::call;
  std::string_view arguments;
  od::object object;
  if (!read_name(reading, elements, &work.library) || !read_name(reading, elements, &work.name)) return false;
  if (elements.next().get_object().get(object) != simdjson::SUCCESS || object.raw_json().get(arguments) != simdjson::SUCCESS) return false;
  if (!find_arguments(reading, arguments, &work.arguments) || !elements.address(&work.stream) || !is_time(elements.next(), &work.time_ns))
    return false;
  add_work(reading, std::move(work));
  return true;
}

bool read_fill(Reading& reading, Elements& elements) {
  Work work;
  work.kind = WorkKind::memset;
  uint64_t address = 0;
  int64_t byte = 0;
  if (!elements.address(&address) || !elements.integer(&byte) || !elements.size(&work.size_bytes)) return false;
  if (work.size_bytes > kMostBytes || !elements.address(&work.stream) || !is_time(elements.next(), &work.time_ns)) return false;
  add_work(reading, std::move(work));
  return true;
}

// `first` and `second`: the order's two addresses, which its line has before the time.
bool read_order(Elements& elements, uint64_t* first, uint64_t* second, Order* order) {
  return elements.address(first) && elements.address(second) && elements.size(&order->time_ns) && order->time_ns < kMostNs;
}

void add_order(Reading& reading, Order order) {
  if (!reading.in_observed_step()) return;
  if (order.kind == OrderKind::stream_wait || order.kind == OrderKind::host_wait_event) {
    const auto known = reading.log.event_streams.find(order.event);
    if (known == reading.log.event_streams.end()) return;  // the event was never recorded, so nothing waits for it
    order.recorded_on = known->second;
  }
  order.work_before = reading.trace.observed.work.size();
  reading.trace.observed.order.push_back(order);
}

// `object` is a whole call, or one operation of the executed graph.
void count_convolution(od::object object, bool asked, Convolutions* out) {
  std::vector<int64_t> x, w;
  std::string type, operation;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "x") x = integers_of(value);
    if (key == "w") w = integers_of(value);
    if (key == "type") type = text_of(value);
    if (key == "op") operation = text_of(value);
  });
  // A call without a window is the gradient of a bias. Other operations of a graph are no convolutions either.
  if (operation.empty() ? w.empty() : operation.rfind("convolution", 0) != 0) return;
  add_convolution(x, w, type == "float32", out);
  if (asked) ++out->asked;
}

}  // namespace

const char* read_vgpu_mark(Reading& reading, Elements& elements) {
  VgpuEvent event;
  event.kind = VgpuEventKind::mark;
  const bool ok = elements.address(&event.address);
  reading.log.mark = static_cast<int64_t>(event.address);
  return ok && add_event(reading, event) ? nullptr : "'vgpu_mark'";
}

const char* read_workspace(Reading& reading, Elements& elements) {
  VgpuEvent event;
  event.kind = VgpuEventKind::workspace;
  const bool ok = read_name(reading, elements, &event.library) && elements.address(&event.address) && elements.size(&event.size_bytes);
  return ok && add_event(reading, event) ? nullptr : "'workspace'";
}

const char* read_device_alloc(Reading& reading, Elements& elements) {
  return read_device_memory(reading, elements, VgpuEventKind::device_alloc) ? nullptr : "'device_alloc'";
}

const char* read_device_free(Reading& reading, Elements& elements) {
  return read_device_memory(reading, elements, VgpuEventKind::device_free) ? nullptr : "'device_free'";
}

const char* read_library_memory(Reading& reading, Elements& elements) {
  VgpuEvent event;
  event.kind = VgpuEventKind::library_memory;
  const bool ok =
      read_name(reading, elements, &event.library) && read_name(reading, elements, &event.what) && elements.integer(&event.size_bytes);
  return ok && add_event(reading, event) ? nullptr : "'library_memory'";
}

const char* read_kernel_name(Reading& reading, Elements& elements) {
  int64_t id = 0;
  KernelName kernel;
  if (!elements.integer(&id) || !read_name(reading, elements, &kernel.name)) return "'kernel_name'";
  int64_t registers = 0, shared = 0, local = 0;
  if (elements.size(&registers) && elements.size(&shared) && elements.size(&local) && std::max({registers, shared, local}) <= INT32_MAX) {
    std::vector<CompiledKernel>& compiled = reading.trace.observed.compiled;
    kernel.compiled = static_cast<int32_t>(compiled.size());
    compiled.push_back({static_cast<int>(registers), static_cast<int>(shared), static_cast<int>(local)});
    int64_t code = -1;
    if (elements.size(&code)) compiled.back().code = code;
  }
  reading.log.kernel_names[id] = kernel;
  return nullptr;
}

const char* read_kernel_code(Reading& reading, Elements& elements) {
  int64_t number = 0;
  std::string_view ptx;
  if (!elements.size(&number) || !elements.text(&ptx)) return "'kernel_code'";
  reading.trace.observed.codes[number] = ptx;
  return nullptr;
}

const char* read_values(Reading& reading, Elements& elements) {
  int64_t id = 0;
  KnownValues values;
  std::string_view hex;
  if (!elements.size(&id) || !elements.address(&values.address) || !elements.text(&hex)) return "'values'";
  std::optional<std::string> bytes = bytes_from_hex(hex);
  if (!bytes) return "'values'";
  values.bytes = std::move(*bytes);
  reading.trace.observed.values[id] = std::move(values);
  return nullptr;
}

const char* read_thread(Reading& reading, Elements& elements) { return elements.integer(&reading.log.thread) ? nullptr : "'thread'"; }

const char* read_captured(Reading& reading, Elements& elements) {
  LogState& log = reading.log;
  const bool ok = elements.size(&log.captured_ns) && elements.integer(&log.captured_thread) && log.captured_ns < kMostNs;
  if (!ok || !reading.in_observed_step()) log.captured_ns = -1;
  return ok ? nullptr : "'captured'";
}

const char* read_arguments(Reading& reading, Elements& elements) {
  std::string_view hex;
  if (!elements.text(&hex) || hex.size() > kMostParameterDigits) return "'arguments'";
  std::optional<std::string> arguments = bytes_from_hex(hex);
  if (!arguments) return "'arguments'";
  if (!reading.in_observed_step()) return nullptr;
  reading.log.arguments = {std::move(*arguments), {}};
  for (int64_t id = 0; elements.size(&id);) reading.log.arguments.values.push_back(id);
  return nullptr;
}

const char* read_kernel(Reading& reading, Elements& elements) {
  const Arguments arguments = std::exchange(reading.log.arguments, {});  // not of the next launch
  return !reading.in_observed_step() || read_launch(reading, elements, arguments) ? nullptr : "'kernel'";
}

const char* read_call(Reading& reading, Elements& elements) {
  return !reading.in_observed_step() || read_library_call(reading, elements) ? nullptr : "'call'";
}

const char* read_memset(Reading& reading, Elements& elements) {
  return !reading.in_observed_step() || read_fill(reading, elements) ? nullptr : "'memset'";
}

const char* read_memcpy(Reading& reading, Elements& elements) {
  constexpr const char* kName = "'memcpy'";
  constexpr int64_t kFromHost = 1;
  VgpuEvent event;
  event.kind = VgpuEventKind::copy_to_device;
  Work copy;
  copy.kind = WorkKind::copy;
  uint64_t from = 0;
  if (!elements.integer(&copy.copy_kind) || !elements.address(&event.address) || !elements.address(&from) ||
      !elements.size(&event.size_bytes)) {
    return kName;
  }
  copy.size_bytes = event.size_bytes;
  if (reading.in_observed_step() && copy.size_bytes <= kMostBytes && elements.address(&copy.stream) && elements.size(&copy.time_ns) &&
      copy.time_ns < kMostNs) {
    int64_t pageable = 0;
    copy.pageable = elements.integer(&pageable) && pageable == 1;
    add_work(reading, copy);
  }
  // Only copies from the host are kept: they show which blocks are inputs.
  return copy.copy_kind != kFromHost || add_event(reading, event) ? nullptr : kName;
}

const char* read_event_record(Reading& reading, Elements& elements) {
  Order order;
  order.kind = OrderKind::event_record;
  if (!read_order(elements, &order.event, &order.stream, &order)) return "'event_record'";
  reading.log.event_streams[order.event] = order.stream;
  add_order(reading, order);
  return nullptr;
}

const char* read_stream_wait(Reading& reading, Elements& elements) {
  Order order;
  order.kind = OrderKind::stream_wait;
  if (!read_order(elements, &order.stream, &order.event, &order)) return "'stream_wait'";
  add_order(reading, order);
  return nullptr;
}

const char* read_host_wait(Reading& reading, Elements& elements) {
  static constexpr OrderKind kKinds[] = {OrderKind::host_wait_stream, OrderKind::host_wait_event, OrderKind::host_wait_device};
  Order order;
  uint64_t what = 0, handle = 0;
  if (!read_order(elements, &what, &handle, &order) || what >= std::size(kKinds)) return "'host_wait'";
  order.kind = kKinds[what];
  (order.kind == OrderKind::host_wait_event ? order.event : order.stream) = handle;
  add_order(reading, order);
  return nullptr;
}

const char* read_graph(Reading& reading, Elements& elements) {
  Order order;
  uint64_t begins = 0;
  if (!read_order(elements, &begins, &order.stream, &order)) return "'graph'";
  order.kind = begins != 0 ? OrderKind::graph_begin : OrderKind::graph_end;
  add_order(reading, order);
  return nullptr;
}

const char* read_convolutions(Reading& reading, Elements& elements) {
  od::object arguments;
  std::string_view name;
  if (!elements.skip() || !elements.skip() || !elements.text(&name) || elements.next().get_object().get(arguments) != simdjson::SUCCESS)
    return "a call of cuDNN";
  Convolutions* const out = &reading.trace.convolutions;
  if (name.find("Convolution") != std::string_view::npos) {
    count_convolution(arguments, false, out);
    return nullptr;
  }
  bool asked = false;
  each_field(arguments, [&](std::string_view key, auto value) {
    od::array operations;
    asked = asked || key == "asked";
    if (key != "operations" || value.get_array().get(operations) != simdjson::SUCCESS) return;
    for (auto operation : operations) {
      od::object fields;
      if (operation.get_object().get(fields) != simdjson::SUCCESS) return;
      count_convolution(fields, asked, out);
    }
  });
  return nullptr;
}

}  // namespace gpucast::capture
