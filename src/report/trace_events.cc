#include "src/report/trace_events.h"

#include "gpucast/error.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr std::string_view kBetweenEvents = ",\n";

}  // namespace

std::string json_text(std::string_view text) { return Json(text).dump(); }

std::string microseconds(int64_t ns) { return ns % 1000 == 0 ? std::to_string(ns / 1000) : fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

TraceEvents::TraceEvents(std::ostream& out) : out_(out), bytes_("{\"traceEvents\":[\n") {}

void TraceEvents::end_event() {
  bytes_ += kBetweenEvents;
  if (bytes_.size() >= kBufferBytes) flush_but_last_comma();
}

// finish() removes the comma after the last event, so it must still be in the buffer.
void TraceEvents::flush_but_last_comma() {
  const size_t count = bytes_.size() - kBetweenEvents.size();
  out_.write(bytes_.data(), static_cast<std::streamsize>(count));
  bytes_.erase(0, count);
}

void TraceEvents::name_process(int process, std::string_view name) {
  add_event(R"({{"ph":"M","pid":{},"tid":{},"name":"process_name","args":{{"name":{}}}}})", process, process, json_text(name));
  add_event(R"({{"ph":"M","pid":{},"tid":{},"name":"process_sort_index","args":{{"sort_index":{}}}}})", process, process, process);
}

void TraceEvents::name_thread(int process, int thread, std::string_view name) {
  add_event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", process, thread, json_text(name));
  add_event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", process, thread, thread);
}

void TraceEvents::finish(std::string_view about, std::string_view fields) {
  flush_but_last_comma();
  out_ << "\n],\n\"otherData\":" << about;
  if (!fields.empty()) out_ << ",\n" << fields;
  out_ << "}\n";
  out_.flush();
  if (!out_) throw Error("the trace cannot be written", "", "is the disk full?");
}

}  // namespace gpucast
