// A PyTorch Profiler trace -> ProfileTrace. One pass: an event is scanned inside the window, and only fields that are kept are copied. When
// the window ends inside an event, more text is read and the event is scanned again from its start.

#include "src/trace/read_profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <unordered_map>

#include "gpucast/error.h"
#include "src/trace/json_scanner.h"
#include "src/trace/text_windows.h"

namespace gpucast {
namespace {

constexpr size_t kWindowBytes = 1 << 20;
constexpr size_t kMostEventBytes = 16 << 20;            // a longer event counts as one without an end
constexpr size_t kMostGpucastBytes = 64 << 20;          // of the top-level key "gpucast"
constexpr size_t kRestartBytes = 256;                   // of text around an event's begin, enough to recognize it
constexpr int64_t kMostBytes = int64_t{1} << 44;        // 16 TiB: no card has that much memory, and sums stay within 64 bits
constexpr int64_t kMostNs = 3'000'000'000'000'000'000;  // the year 2065: sums and differences of two times stay within 64 bits
static_assert(TextWindows::kPadding >= JsonScanner::kPadding);

constexpr std::string_view kModulePrefix = "nn.Module: ";

// The fields of an event that may be needed, as views of the window.
struct RawEvent {
  JsonValue ph, cat, name, pid, tid, ts, dur;
  JsonValue order, sequence_number, dims, types, strides, concrete, call_stack;
  JsonValue python_id, python_parent, module_id;
  JsonValue address, bytes, device_type, device_id, total_allocated, total_reserved;
};

JsonValue* event_field(std::string_view key, RawEvent* event) {
  if (key == "ph") return &event->ph;
  if (key == "cat") return &event->cat;
  if (key == "name") return &event->name;
  if (key == "pid") return &event->pid;
  if (key == "tid") return &event->tid;
  if (key == "ts") return &event->ts;
  if (key == "dur") return &event->dur;
  return nullptr;
}

JsonValue* argument(std::string_view key, RawEvent* event) {
  switch (key.size()) {
    case 4:
      return key == "Addr" ? &event->address : nullptr;
    case 5:
      return key == "Bytes" ? &event->bytes : nullptr;
    case 6:
      return key == "Ev Idx" ? &event->order : nullptr;
    case 9:
      return key == "Python id" ? &event->python_id : key == "Device Id" ? &event->device_id : nullptr;
    case 10:
      return key == "Input Dims" || key == "Input dims"   ? &event->dims
             : key == "Input type" || key == "Input Type" ? &event->types
             : key == "Call stack"                        ? &event->call_stack
                                                          : nullptr;
    case 11:
      return key == "Device Type" ? &event->device_type : nullptr;
    case 13:
      return key == "Input Strides" || key == "Input strides" ? &event->strides : nullptr;
    case 14:
      return key == "Total Reserved" ? &event->total_reserved : nullptr;
    case 15:
      return key == "Concrete Inputs"   ? &event->concrete
             : key == "Sequence number" ? &event->sequence_number
             : key == "Total Allocated" ? &event->total_allocated
                                        : nullptr;
    case 16:
      return key == "Python parent id" ? &event->python_parent : key == "Python module id" ? &event->module_id : nullptr;
    default:
      return nullptr;
  }
}

bool scan_arguments(JsonScanner& scanner, RawEvent* event) {
  JsonValue key, unused;
  if (scanner.peek() != '{') return scanner.value(&unused);
  if (!scanner.skip_char('{')) return false;
  if (scanner.peek() == '}') return scanner.skip_char('}');
  for (bool last = false; !last;) {
    if (!scanner.string(&key) || !scanner.skip_char(':')) return false;
    JsonValue* field = argument(key.text, event);
    if (!scanner.value(field != nullptr ? field : &unused) || !scanner.separator('}', &last)) return false;
  }
  return true;
}

bool scan_event(JsonScanner& scanner, RawEvent* event) {
  JsonValue key, unused;
  if (!scanner.skip_char('{')) return false;
  if (scanner.peek() == '}') return scanner.skip_char('}');
  for (bool last = false; !last;) {
    if (!scanner.string(&key) || !scanner.skip_char(':')) return false;
    if (key.text == "args") {
      if (!scan_arguments(scanner, event)) return false;
    } else {
      JsonValue* field = event_field(key.text, event);
      if (!scanner.value(field != nullptr ? field : &unused)) return false;
    }
    if (!scanner.separator('}', &last)) return false;
  }
  return true;
}

// How the reader uses an event.
enum class EventUse : uint8_t { none, op, annotation, python, memory, cuda };

EventUse use_of(const RawEvent& event) {
  const std::string_view cat = event.cat.text;
  if (event.ph.text == "X") {
    if (cat == "cpu_op" || cat == "Operator") return EventUse::op;
    if (cat == "user_annotation") return EventUse::annotation;
    if (cat == "python_function") return EventUse::python;
    // Includes the spellings of older releases.
    if (cat == "kernel" || cat == "Kernel" || cat == "gpu_memcpy" || cat == "Memcpy" || cat == "gpu_memset" || cat == "Memset")
      return EventUse::cuda;
  } else if ((event.ph.text == "i" || event.ph.text == "I") && event.name.text == "[memory]") {
    return EventUse::memory;
  }
  return EventUse::none;
}

// Releases before 1.10 write every range as an operator. These are the names of PyTorch's own annotations.
bool is_annotation_name(std::string_view name) {
  for (const std::string_view prefix : {"ProfilerStep#", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#"}) {
    if (name.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

bool set_time(const JsonValue& value, int64_t* out) {
  const std::optional<int64_t> ns = parse_scaled(value.text, 3);
  if (!ns || *ns > kMostNs || *ns < -kMostNs) return false;
  *out = *ns;
  return true;
}

bool set_integer(const JsonValue& value, int64_t* out) {
  const std::optional<int64_t> number = parse_scaled(value.text, 0);
  if (number) *out = *number;
  return number.has_value();
}

bool set_bytes(const JsonValue& value, int64_t* out) {
  int64_t number = 0;
  if (!set_integer(value, &number) || number > kMostBytes || number < -kMostBytes) return false;
  *out = number;
  return true;
}

template <class Small>
void set_small(const JsonValue& value, Small* out) {
  int64_t number = 0;
  if (set_integer(value, &number) && number >= std::numeric_limits<Small>::min() && number <= std::numeric_limits<Small>::max())
    *out = static_cast<Small>(number);
}

// Pointers may be written as signed numbers.
bool set_address(const JsonValue& value, uint64_t* out) {
  const char* const end = value.text.data() + value.text.size();
  if (!value.text.empty() && value.text.front() == '-') {
    int64_t number = 0;
    const auto [at, error] = std::from_chars(value.text.data(), end, number);
    *out = static_cast<uint64_t>(number);
    return error == std::errc() && at == end;
  }
  const bool hex = value.text.substr(0, 2) == "0x";
  const auto [at, error] = std::from_chars(value.text.data() + (hex ? 2 : 0), end, *out, hex ? 16 : 10);
  return error == std::errc() && at == end;
}

// Sorts a list that consists of a few sorted runs. The profiler writes one run for each thread and kind.
template <class Item, class Before>
void merge_runs(std::vector<Item>* items, Before before) {
  using Offset = typename std::vector<Item>::difference_type;
  std::vector<Offset> bounds = {0};  // of the runs
  for (size_t i = 1; i < items->size(); ++i) {
    if (before((*items)[i], (*items)[i - 1])) bounds.push_back(static_cast<Offset>(i));
  }
  bounds.push_back(static_cast<Offset>(items->size()));
  while (bounds.size() > 2) {
    std::vector<Offset> merged = {0};
    for (size_t i = 2; i < bounds.size(); i += 2) {
      std::inplace_merge(items->begin() + bounds[i - 2], items->begin() + bounds[i - 1], items->begin() + bounds[i], before);
      merged.push_back(bounds[i]);
    }
    if (bounds.size() % 2 == 0) merged.push_back(bounds.back());
    bounds.swap(merged);
  }
}

// ---- finding the next event after an unreadable one -----------------------------------------------------------------------

constexpr std::string_view kEventKeys[] = {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args", "id", "s", "bp"};
constexpr std::string_view kTopLevelKeys[] = {
    "traceName",       "displayTimeUnit", "baseTimeNanoseconds", "gpucast",       "schemaVersion",        "record_shapes",
    "profile_memory",  "with_stack",      "with_flops",          "with_modules",  "deviceProperties",     "trace_id",
    "distributedInfo", "stackFrames",     "otherData",           "cupti_version", "cuda_runtime_version", "cuda_driver_version"};

// The key at `at`, after white space, e.g. `"ph"`; "" when there is none. Moves `at` after the key.
std::string_view key_at(const char** at, const char* end) {
  const char* from = *at;
  while (from < end && is_json_space(*from)) ++from;
  if (from == end || *from != '"') return {};
  const char* to = ++from;
  while (to < end && *to != '"' && *to != '\\') ++to;
  if (to == end || *to != '"') return {};
  *at = to + 1;
  return {from, static_cast<size_t>(to - from)};
}

bool colon_at(const char* at, const char* end) {
  while (at < end && is_json_space(*at)) ++at;
  return at < end && *at == ':';
}

template <size_t count>
bool is_one_of(std::string_view key, const std::string_view (&keys)[count]) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

// The next position in [from, end) where an event begins or the list of events ends; null: none. An event begins at every `{"ph":`, and at
// `}, {"KEY":` with another key of events. `last_window`: the file ends at `end`.
const char* find_restart(const char* from, const char* end, bool last_window) {
  char last = 0, before_last = 0;  // characters that are not white space
  for (const char* at = from; at < end; ++at) {
    if (is_json_space(*at)) continue;
    if (*at == '{') {
      const char* behind = at + 1;
      const std::string_view key = key_at(&behind, end);
      if (!key.empty() && colon_at(behind, end) && (key == "ph" || (last == ',' && before_last == '}' && is_one_of(key, kEventKeys))))
        return at;
    } else if (*at == ']' && last == '}') {
      const char* behind = at + 1;
      while (behind < end && is_json_space(*behind)) ++behind;
      if (behind < end ? *behind == '}' : last_window) return at;
      if (behind < end && *behind == ',') {
        ++behind;
        const std::string_view key = key_at(&behind, end);
        if (is_one_of(key, kTopLevelKeys) && colon_at(behind, end)) return at;
      }
    }
    before_last = last;
    last = *at;
  }
  return nullptr;
}

// ---- the reader -----------------------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(const std::string& path, size_t window_bytes) : text_(path, window_bytes) { trace_.path = path; }

  ProfileTrace read() {
    int first = peek();
    if (first == 0xef) {  // a byte order mark
      for (int i = 0; i < 3 && first != -1; ++i) first = skip_char();
    }
    if (first == '{') {
      read_top_level();
    } else if (first == '[') {
      skip_char();
      seen_events_ = read_events() || trace_.events_read > 0;
    }
    // An unreadable event may have looked like the end of the list.
    while (seen_events_ && peek() != -1 && go_to_next_event()) {
      note_text_outside_of_events();
      if (!read_events()) break;
    }
    if (!seen_events_ || (trace_.events_read == 0 && trace_.problems[ProfileProblem::bad_event].count > 0)) not_a_trace();
    finish();
    return std::move(trace_);
  }

 private:
  // Returns the next character that is not white space, without consuming it; -1 at the end.
  int peek() {
    while (true) {
      const char* at = text_.begin();
      while (at != text_.end() && is_json_space(*at)) ++at;
      text_.consume(at);
      if (at != text_.end()) return static_cast<unsigned char>(*at);
      if (!text_.more()) return -1;
    }
  }
  // Consumes one character, which must exist, then does the same as peek().
  int skip_char() {
    text_.consume(text_.begin() + 1);
    return peek();
  }

  void read_top_level();
  bool read_top_level_member();
  void note_text_outside_of_events();
  bool read_top_level_key(std::string* key);
  bool read_top_level_value(std::string* value, size_t limit);
  bool find_trace_events();
  void use_top_level(const std::string& key, const std::string& value);
  bool read_events();
  void read_event();
  bool go_to_next_event();
  void keep_event(const RawEvent& event);
  void keep_span(const RawEvent& event, EventUse use);
  void keep_memory(const RawEvent& event);
  std::string_view unescaped(const JsonValue& value);
  StringId text_id(const JsonValue& value);
  bool set_thread(const RawEvent& event, uint32_t* thread);
  void incomplete(const char* what);
  void truncated();
  [[noreturn]] void not_a_trace();
  void finish();

  std::string describe_event(uint64_t offset) const {
    return fmt::format("event {}, byte {}{}", event_number_, offset, text_.is_gzip() ? " of the uncompressed text" : "");
  }

  TextWindows text_;
  ProfileTrace trace_;
  bool seen_events_ = false;
  bool is_truncated_ = false;
  int64_t event_number_ = 0;  // of the current event, from 1; unreadable events count too
  std::unordered_map<uint64_t, std::vector<uint32_t>> threads_;
  std::string scratch_;
};

void Reader::truncated() {
  if (is_truncated_) return;
  is_truncated_ = true;
  const char* why = "the file ends inside the trace";
  if (text_.ended() == TextWindows::End::truncated) why = "the compressed file ends in the middle";
  if (text_.ended() == TextWindows::End::corrupt) why = "the compressed bytes are damaged";
  trace_.problems.add(ProfileProblem::truncated_file, fmt::format("{}: {}", describe_event(text_.offset()), why));
}

void Reader::not_a_trace() {
  throw Error(fmt::format("{} is not a profiler trace: it has no \"traceEvents\"", trace_.path), fmt::format("byte {}", text_.offset()),
              "give a file that torch.profiler's export_chrome_trace() wrote");
}

// ---- top level ----

// Starts at the '{'. When the text is not JSON, goes on at the next event.
void Reader::read_top_level() {
  for (int c = skip_char(); c != -1; c = peek()) {
    if (c == '}') {
      skip_char();
      return;
    }
    if (c == ',') {
      skip_char();
    } else if (!read_top_level_member()) {
      if (peek() == -1) break;
      note_text_outside_of_events();
      if (!(seen_events_ ? go_to_next_event() : find_trace_events())) break;
      seen_events_ = true;
      if (!read_events()) return;
    }
  }
  if (!seen_events_) {
    throw Error(fmt::format("{} ends before its \"traceEvents\"", trace_.path), fmt::format("byte {}", text_.offset()),
                "the file is cut off, or no profiler trace: give one that torch.profiler's export_chrome_trace() wrote");
  }
  truncated();
}

// Reads "KEY": VALUE and looks at the next character. False: this is not JSON, or the file ends.
bool Reader::read_top_level_member() {
  std::string key, value;
  if (peek() != '"' || !read_top_level_key(&key) || peek() != ':') return false;
  if (skip_char() == '[' && key == "traceEvents") {
    skip_char();
    seen_events_ = true;
    if (!read_events()) return false;
  } else {
    if (!read_top_level_value(&value, key == "gpucast" ? kMostGpucastBytes : kRestartBytes)) return false;
    use_top_level(key, value);
  }
  const int c = peek();
  return c == ',' || c == '}';
}

void Reader::note_text_outside_of_events() {
  trace_.problems.add(ProfileProblem::bad_event, fmt::format("byte {}: not JSON, outside of the events", text_.offset()));
}

bool Reader::read_top_level_key(std::string* key) {
  JsonValue value;
  while (true) {
    JsonScanner scanner(text_.begin(), text_.end());
    if (scanner.string(&value)) {
      *key = value.text;
      text_.consume(scanner.position());
      return true;
    }
    if (text_.size() > kMostEventBytes) return false;
    if (!text_.more()) {
      text_.consume(text_.end());
      return false;
    }
  }
}

// Steps over a value of any length, and keeps its text unless it is longer than `limit`. Checks only brackets and quotes.
bool Reader::read_top_level_value(std::string* value, size_t limit) {
  value->clear();
  if (peek() == -1) return false;
  bool in_string = false, escaped = false, too_long = false;
  int64_t depth = 0;
  while (true) {
    const char* at = text_.begin();
    bool done = false;
    for (; at != text_.end() && !done; ++at) {
      const char c = *at;
      if (escaped) {
        escaped = false;
      } else if (in_string) {
        escaped = c == '\\';
        in_string = c != '"';
        done = !in_string && depth == 0;
      } else if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_json_space(c))) {
        break;  // the end of a number or word; this character is not part of it
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        done = --depth == 0;
      }
    }
    done = done || at != text_.end();
    too_long = too_long || value->size() + static_cast<size_t>(at - text_.begin()) > limit;
    if (too_long) {
      value->clear();
    } else {
      value->append(text_.begin(), at);
    }
    text_.consume(at);
    if (done) return true;
    if (!text_.more()) return false;
  }
}

// Searches for the next `"traceEvents": [` and goes on after it.
bool Reader::find_trace_events() {
  constexpr std::string_view kKey = "\"traceEvents\"";
  while (true) {
    const std::string_view text(text_.begin(), text_.size());
    const size_t found = text.find(kKey);
    if (found != std::string_view::npos) {
      text_.consume(text_.begin() + found + kKey.size());
      if (peek() != ':' || skip_char() != '[') continue;
      skip_char();
      return true;
    }
    text_.consume(text_.end() - std::min(text.size(), kKey.size() - 1));
    if (!text_.more()) return false;
  }
}

void Reader::use_top_level(const std::string& key, const std::string& value) {
  const bool on = !value.empty() && value != "0" && value != "false" && value != "null" && value != "\"0\"" && value != "\"false\"";
  if (key == "record_shapes") trace_.record_shapes = on;
  if (key == "profile_memory") trace_.profile_memory = on;
  if (key == "with_stack") trace_.with_stack = on;
  if (key == "gpucast") trace_.gpucast_json = value;
}

// ---- events ----

// Starts after the '['. False: the file ended before the list did.
bool Reader::read_events() {
  for (int c = peek(); c != -1;) {
    if (c == ']') {
      skip_char();
      return true;
    }
    if (c == ',') {
      c = skip_char();
      continue;
    }
    if (c == '{') {
      read_event();
    } else {
      ++event_number_;
      trace_.problems.add(ProfileProblem::bad_event, fmt::format("{}: '{{' expected", describe_event(text_.offset())));
      if (!go_to_next_event()) break;
    }
    c = peek();
  }
  truncated();
  return false;
}

void Reader::read_event() {
  ++event_number_;
  while (true) {
    JsonScanner scanner(text_.begin(), text_.end());
    RawEvent raw;
    if (scan_event(scanner, &raw)) {
      ++trace_.events_read;
      keep_event(raw);
      text_.consume(scanner.position());
      return;
    }
    if (scanner.stop() == JsonScanner::Stop::more && text_.size() < kMostEventBytes) {
      if (text_.more()) continue;
      // The file ended inside the event. If another event begins after its start, the event is bad, and not cut off.
      if (find_restart(text_.begin() + 1, text_.end(), true) == nullptr) {
        truncated();
        text_.consume(text_.end());
        return;
      }
    }
    const uint64_t at = text_.offset() + static_cast<uint64_t>(scanner.position() - text_.begin());
    trace_.problems.add(ProfileProblem::bad_event,
                        fmt::format("{}: {} expected at byte {}", describe_event(text_.offset()), scanner.expected(), at));
    go_to_next_event();
    return;
  }
}

// Goes to the next begin of an event, or to the end of the list. False: there is neither.
bool Reader::go_to_next_event() {
  const char* from = text_.begin() + 1;
  while (true) {
    const char* const at = find_restart(from, text_.end(), text_.ended() != TextWindows::End::none);
    if (at != nullptr) {
      text_.consume(at);
      return true;
    }
    text_.consume(std::max(from, text_.end() - std::min(text_.size(), kRestartBytes)));
    if (!text_.more()) break;
    from = text_.begin();
  }
  text_.consume(text_.end());
  return false;
}

void Reader::incomplete(const char* what) {
  trace_.problems.add(ProfileProblem::incomplete_event, fmt::format("{}: {}", describe_event(text_.offset()), what));
}

void Reader::keep_event(const RawEvent& event) {
  const EventUse use = use_of(event);
  switch (use) {
    case EventUse::none:
      break;
    case EventUse::cuda:
      ++trace_.cuda_kernels;
      break;
    case EventUse::memory:
      keep_memory(event);
      break;
    case EventUse::op:
    case EventUse::annotation:
    case EventUse::python:
      keep_span(event, use);
      break;
  }
}

void Reader::keep_span(const RawEvent& event, EventUse use) {
  ProfileSpan span;
  int64_t duration_ns = 0;
  if (!event.name.is_string()) return incomplete("no \"name\"");
  if (!set_time(event.ts, &span.begin_ns)) return incomplete("no \"ts\" that is a time in microseconds");
  if (!set_time(event.dur, &duration_ns) || duration_ns < 0) return incomplete("no \"dur\" that is a duration in microseconds");
  if (!set_thread(event, &span.thread)) return incomplete("no \"pid\" and \"tid\" that are numbers");
  span.end_ns = span.begin_ns + duration_ns;
  span.order = event_number_ - 1;
  set_integer(event.order, &span.order);
  std::string_view name = unescaped(event.name);
  if (use == EventUse::python) {
    span.kind = SpanKind::function;
    if (name.substr(0, kModulePrefix.size()) == kModulePrefix) {
      span.kind = SpanKind::module;
      name.remove_prefix(kModulePrefix.size());
    }
    set_small(event.python_id, &span.python_id);
    set_small(event.python_parent, &span.python_parent);
    set_small(event.module_id, &span.module_id);
    trace_.with_stack = true;
  } else {
    span.kind = use == EventUse::annotation || is_annotation_name(name) ? SpanKind::annotation : SpanKind::op;
  }
  span.name = trace_.strings.intern(name);
  if (use == EventUse::op) {
    set_integer(event.sequence_number, &span.sequence_number);
    span.dims = text_id(event.dims);
    span.types = text_id(event.types);
    span.strides = text_id(event.strides);
    span.concrete = text_id(event.concrete);
    if (span.dims.valid()) trace_.record_shapes = true;
    if (event.call_stack.kind != JsonValue::none) trace_.with_stack = true;
  }
  trace_.spans.push_back(span);
}

void Reader::keep_memory(const RawEvent& event) {
  ProfileMemory memory;
  if (!set_time(event.ts, &memory.time_ns)) return incomplete("[memory] without a \"ts\" that is a time in microseconds");
  if (!set_bytes(event.bytes, &memory.bytes)) return incomplete("[memory] without \"Bytes\" that are a number");
  if (!set_thread(event, &memory.thread)) return incomplete("[memory] without \"pid\" and \"tid\" that are numbers");
  memory.order = event_number_ - 1;
  set_integer(event.order, &memory.order);
  if (event.address.kind != JsonValue::none && !set_address(event.address, &memory.address))
    return incomplete("[memory] with an \"Addr\" that is no address");
  set_bytes(event.total_allocated, &memory.total_allocated_bytes);
  set_bytes(event.total_reserved, &memory.total_reserved_bytes);
  set_small(event.device_type, &memory.device_type);
  set_small(event.device_id, &memory.device_id);
  trace_.profile_memory = true;
  trace_.memory.push_back(memory);
}

// Valid until the next call.
std::string_view Reader::unescaped(const JsonValue& value) {
  if (value.kind != JsonValue::escaped_string) return value.text;
  scratch_.clear();
  append_unescaped(value.text, &scratch_);
  return scratch_;
}

StringId Reader::text_id(const JsonValue& value) {
  if (value.kind == JsonValue::none || value.text == "null") return {};
  return trace_.strings.intern(unescaped(value));
}

bool Reader::set_thread(const RawEvent& event, uint32_t* thread) {
  ProfileThread id;
  if (!set_integer(event.pid, &id.pid) || !set_integer(event.tid, &id.tid)) return false;
  std::vector<uint32_t>& candidates = threads_[static_cast<uint64_t>(id.pid) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(id.tid)];
  for (const uint32_t index : candidates) {
    const ProfileThread& known = trace_.threads[index];
    if (known.pid == id.pid && known.tid == id.tid) {
      *thread = index;
      return true;
    }
  }
  *thread = static_cast<uint32_t>(trace_.threads.size());
  candidates.push_back(*thread);
  trace_.threads.push_back(id);
  return true;
}

void Reader::finish() {
  // Compressed bytes may be damaged after the last bracket.
  if (peek() == -1 && text_.ended() != TextWindows::End::complete) truncated();
  int64_t base_ns = INT64_MAX;
  for (const ProfileSpan& span : trace_.spans) base_ns = std::min(base_ns, span.begin_ns);
  for (const ProfileMemory& memory : trace_.memory) base_ns = std::min(base_ns, memory.time_ns);
  if (base_ns == INT64_MAX) base_ns = 0;
  for (ProfileSpan& span : trace_.spans) {
    span.begin_ns -= base_ns;
    span.end_ns -= base_ns;
  }
  for (ProfileMemory& memory : trace_.memory) memory.time_ns -= base_ns;
  trace_.base_ns = base_ns;
  merge_runs(&trace_.spans, [](const ProfileSpan& a, const ProfileSpan& b) {
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    return a.end_ns != b.end_ns ? a.end_ns > b.end_ns : a.order < b.order;
  });
  merge_runs(&trace_.memory, [](const ProfileMemory& a, const ProfileMemory& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.order < b.order;
  });
}

}  // namespace

ProfileTrace read_profile(const std::string& path, size_t window_bytes) { return Reader(path, window_bytes).read(); }

ProfileTrace read_profile(const std::string& path) { return read_profile(path, kWindowBytes); }

bool looks_like_profile(const std::string& path) {
  TextWindows text(path, 4096);
  while (text.size() < kRestartBytes && text.more()) {
  }
  const char* at = text.begin();
  if (text.size() >= 3 && std::string_view(at, 3) == "\xef\xbb\xbf") at += 3;
  while (at != text.end() && is_json_space(*at)) ++at;
  if (at == text.end()) return false;
  const char first = *at++;
  if (first == '{') return key_at(&at, text.end()) != "record";  // "record" is the first key of a capture
  while (at != text.end() && is_json_space(*at)) ++at;
  return first == '[' && at != text.end() && (*at == '{' || *at == ']');
}

}  // namespace gpucast
