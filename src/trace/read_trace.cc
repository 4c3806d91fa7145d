// Capture file -> Trace. One pass over the lines; a line is an event ("[") or a record ("{").

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/base/gzip_lines.h"
#include "src/trace/convolutions.h"
#include "src/trace/read_loader.h"
#include "src/trace/read_snapshot.h"

namespace gpucast {
namespace {

namespace od = simdjson::ondemand;

constexpr int64_t kSchemaVersion = 1;
constexpr int64_t kMostBytes = int64_t{1} << 44;        // 16 TiB: no card has as much, and sums of them stay within 64 bits
constexpr int64_t kLastNs = 4'000'000'000'000'000'000;  // since 1970: the year 2096
constexpr int64_t kMostNs = 1'000'000'000'000'000'000;  // 30 years
static_assert(GzipLines::kPadding >= simdjson::SIMDJSON_PADDING);

// ---- elements and fields: every getter says whether the value was there ---------------------------------------------

// The elements of an event, one after the other.
class Elements {
 public:
  explicit Elements(od::array array) : at_(array.begin()), end_(array.end()) {}

  bool text(std::string_view* out) {
    auto value = next();
    return value.error() == simdjson::SUCCESS && value.get_string().get(*out) == simdjson::SUCCESS;
  }
  bool integer(int64_t* out) {
    auto value = next();
    return value.error() == simdjson::SUCCESS && value.get_int64().get(*out) == simdjson::SUCCESS;
  }
  bool address(uint64_t* out) {
    auto value = next();
    return value.error() == simdjson::SUCCESS && value.get_uint64().get(*out) == simdjson::SUCCESS;
  }
  bool size(int64_t* out) { return integer(out) && *out >= 0; }
  bool skip() { return next().error() == simdjson::SUCCESS; }
  simdjson::simdjson_result<od::value> next() {
    if (ended_) return simdjson::INDEX_OUT_OF_BOUNDS;
    if (started_) ++at_;
    started_ = true;
    ended_ = !(at_ != end_);
    if (ended_) return simdjson::INDEX_OUT_OF_BOUNDS;
    auto value = *at_;
    ended_ = value.error() != simdjson::SUCCESS;
    return value;
  }

 private:
  simdjson::simdjson_result<od::array_iterator> at_, end_;
  bool started_ = false;
  bool ended_ = false;  // simdjson must not be asked for more behind the end or an error
};

std::string text_of(simdjson::simdjson_result<od::value> value) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) return "";
  return std::string(text);
}

std::vector<int64_t> integers_of(simdjson::simdjson_result<od::value> value) {
  std::vector<int64_t> out;
  od::array numbers;
  if (value.get_array().get(numbers) != simdjson::SUCCESS) return out;
  for (auto entry : numbers) {
    int64_t number = 0;
    if (entry.get_int64().get(number) != simdjson::SUCCESS) return {};
    out.push_back(number);
  }
  return out;
}

// Calls `use(key, value)` for each field; stops at the first that cannot be parsed and returns false.
template <class Use>
bool each_field(od::object object, Use use) {
  for (auto field : object) {
    std::string_view key;
    if (field.error() != simdjson::SUCCESS || field.unescaped_key().get(key) != simdjson::SUCCESS) return false;
    use(key, field.value());
  }
  return true;
}

bool set_int(simdjson::simdjson_result<od::value> value, int64_t* out) {
  int64_t number = 0;
  if (value.get_int64().get(number) != simdjson::SUCCESS) return false;
  *out = number;
  return true;
}

// A list of what-ifs: of the header, then of the process. An entry of the process that did nothing keeps what the header says.
void read_what_ifs(simdjson::simdjson_result<od::value> value, std::vector<WhatIf>* out) {
  od::array entries;
  if (value.get_array().get(entries) != simdjson::SUCCESS) return;
  for (auto entry : entries) {
    od::object object;
    if (entry.get_object().get(object) != simdjson::SUCCESS) return;
    WhatIf read;
    int64_t count = 0;
    each_field(object, [&](std::string_view key, auto field) {
      if (key == "name") read.name = text_of(field);
      if (key == "did") read.did = text_of(field);
      if (key == "count") (void)set_int(field, &count);
    });
    read.acted = count > 0;
    const auto known = std::find_if(out->begin(), out->end(), [&](const WhatIf& other) { return other.name == read.name; });
    if (known == out->end()) {
      out->push_back(std::move(read));
    } else {
      *known = std::move(read);
    }
  }
}

void set_bool(simdjson::simdjson_result<od::value> value, bool* out) {
  bool flag = false;
  if (value.get_bool().get(flag) == simdjson::SUCCESS) *out = flag;
}

MarkKind mark_kind(std::string_view name) {
  static constexpr std::pair<std::string_view, MarkKind> kNames[] = {{"phase_begin", MarkKind::phase_begin},
                                                                     {"phase_end", MarkKind::phase_end},
                                                                     {"module_begin", MarkKind::module_begin},
                                                                     {"module_end", MarkKind::module_end},
                                                                     {"module_backward", MarkKind::module_backward},
                                                                     {"step", MarkKind::step},
                                                                     {"tensors", MarkKind::tensors},
                                                                     {"exception", MarkKind::exception},
                                                                     {"stats_reset", MarkKind::stats_reset}};
  for (const auto& [text, kind] : kNames) {
    if (text == name) return kind;
  }
  return MarkKind::other;
}

MarkedPhase marked_phase(std::string_view name) {
  static constexpr std::pair<std::string_view, MarkedPhase> kNames[] = {
      {"model_to_device", MarkedPhase::model_to_device}, {"forward", MarkedPhase::forward},
      {"evaluation", MarkedPhase::evaluation},           {"backward", MarkedPhase::backward},
      {"optimizer_step", MarkedPhase::optimizer_step},   {"zero_grad", MarkedPhase::zero_grad}};
  for (const auto& [text, phase] : kNames) {
    if (text == name) return phase;
  }
  return MarkedPhase::unknown;
}

TensorKind tensor_kind(std::string_view name) {
  static constexpr std::pair<std::string_view, TensorKind> kNames[] = {
      {"parameter", TensorKind::parameter}, {"parameter_copy", TensorKind::parameter_copy},   {"buffer", TensorKind::buffer},
      {"gradient", TensorKind::gradient},   {"optimizer_state", TensorKind::optimizer_state}, {"input", TensorKind::input}};
  for (const auto& [text, kind] : kNames) {
    if (text == name) return kind;
  }
  return TensorKind::unknown;
}

// A program without any backward does not evaluate what it trains: forwards without gradients are what it is for.
void without_training(std::vector<Mark>* marks) {
  const auto trains = [](const Mark& mark) { return mark.kind == MarkKind::phase_begin && mark.phase == MarkedPhase::backward; };
  if (std::any_of(marks->begin(), marks->end(), trains)) return;
  for (Mark& mark : *marks) {
    if (mark.phase == MarkedPhase::evaluation) mark.phase = MarkedPhase::forward;
  }
}

// ---- the reader -------------------------------------------------------------------------------------------------------

class Reader {
 public:
  explicit Reader(const std::string& path) : lines_(path) { trace_.path = path; }

  Trace read();

 private:
  void line(std::string_view text);
  void event(std::string_view text);
  void cudnn_call(std::string_view text);
  void convolution(od::object object, bool asked);
  void allocator_event(EventKind kind, Elements& elements);
  void mark(Elements& elements);
  void tensor(Elements& elements);
  void vgpu_event(std::string_view name, Elements& elements);
  void operator_kind(Elements& elements);
  void operator_call(Elements& elements);
  void observed_step(od::object object);
  bool in_observed_step() const { return mark_ >= trace_.observed.first_mark && mark_ < trace_.observed.last_mark; }
  bool work(std::string_view name, Elements& elements);
  void add_work(Work work);
  bool order(std::string_view name, Elements& elements);
  void record(std::string_view text);
  void header(od::object object);
  void process(od::object object);
  void stack(od::object object);
  void module(od::object object);
  void end(od::object object);
  void command_end(od::object object);

  // "line 17 (byte 1234 of the uncompressed text)", and the first characters of the line.
  std::string here(std::string_view text = "") const {
    std::string where = fmt::format("line {} (byte {} uncompressed)", lines_.line_number(), lines_.line_offset());
    if (!text.empty()) where += fmt::format(": {}{}", text.substr(0, 60), text.size() > 60 ? "..." : "");
    return where;
  }
  void problem(Problem problem, const std::string& what) { trace_.problems.add(problem, what + (what.empty() ? "" : ", ") + here()); }

  simdjson::simdjson_result<od::document> parse(std::string_view text) {
    return parser_.iterate(text.data(), text.size(), text.size() + GzipLines::kPadding);
  }

  [[noreturn]] void not_a_capture(std::string_view first_line) const;

  GzipLines lines_;
  od::parser parser_;
  Trace trace_;
  struct KernelName {
    StringId name;
    int32_t compiled = -1;  // in ObservedStep::compiled
  };
  std::unordered_map<int64_t, KernelName> kernel_names_;
  std::unordered_map<uint64_t, uint64_t> event_streams_;  // event -> the stream that it was last recorded on
  int64_t mark_ = 0, thread_ = 0;                         // of the virtual GPU's log, where it is being read
  int64_t captured_ns_ = -1, captured_thread_ = 0;        // same: of the work in the next line
  bool has_header_ = false, has_process_ = false, has_end_ = false, has_eof_ = false, past_first_process_ = false;
};

void Reader::not_a_capture(std::string_view first_line) const {
  const auto starts = [&](std::string_view prefix) { return first_line.substr(0, prefix.size()) == prefix; };
  std::string what = "not a gpucast capture";
  std::string hint = "a capture is what `gpucast run -o FILE -- COMMAND` writes";
  if (first_line.empty() && lines_.line_number() == 0) {
    what = lines_.file_offset() == 0 ? "the file is empty" : "the file holds no complete line";
    hint = "capture again: " + hint;
  } else if (starts("\x80")) {
    hint = "this looks like a Python pickle of a protocol that is not read, or one from a pipe: a memory snapshot must be a file; " + hint;
  } else if (starts("PK")) {
    hint = "this looks like a zip archive or a PyTorch checkpoint; " + hint;
  } else if (first_line.find("traceEvents") != std::string_view::npos || starts("{\"schemaVersion")) {
    hint = "this looks like a Chrome trace, which is not read yet; " + hint;
  }
  throw Error(what, fmt::format("{}, byte 0", trace_.path), hint);
}

Trace Reader::read() {
  std::string_view text;
  while (lines_.next(&text)) {
    if (text.empty()) continue;
    if (!has_header_) {
      if (text.front() == '{') record(text);
      if (!has_header_) not_a_capture(text);
      continue;
    }
    if (has_eof_) {
      trace_.problems.add(Problem::lines_missing, "lines behind the end line, " + here());
      break;
    }
    line(text);
  }
  const std::string stopped =
      fmt::format("{}, byte {} of the file, behind line {}", trace_.path, lines_.file_offset(), lines_.line_number());
  if (!has_header_) {
    if (lines_.end() == GzipLines::End::corrupt)
      throw Error("the file is damaged", stopped, "copy it again (in binary mode), or capture again");
    not_a_capture("");
  }
  if (lines_.end() == GzipLines::End::truncated) trace_.problems.add(Problem::truncated_file, stopped);
  if (lines_.end() == GzipLines::End::corrupt) trace_.problems.add(Problem::damaged_file, stopped);
  if (lines_.end() == GzipLines::End::complete && !has_eof_) trace_.problems.add(Problem::no_eof, stopped);
  const bool whole = has_eof_;
  if (trace_.events.empty() && !whole) {
    throw Error("the capture is cut off before the first allocation: there is nothing to report", stopped,
                "capture again: `gpucast run -o FILE -- COMMAND`");
  }
  if (!has_process_) trace_.problems.add(Problem::no_process, "");
  if (!has_end_ && whole) trace_.problems.add(Problem::no_end, "");
  without_training(&trace_.marks);
  return std::move(trace_);
}

void Reader::line(std::string_view text) {
  if (text.front() == '[') {
    if (!past_first_process_) event(text);
  } else {
    record(text);
  }
}

void Reader::event(std::string_view text) {
  // The log of launches is by far the longest part: but for one step's they are only counted.
  const auto starts = [&](std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; };
  if (starts("[\"kernel\"")) {
    ++trace_.kernels;
    if (!in_observed_step()) return;
  }
  if (starts("[\"call\"")) {
    ++trace_.library_calls;
    if (text.substr(0, 20).find("\"cudnn\"") != std::string_view::npos && text.find("onvolution") != std::string_view::npos)
      cudnn_call(text);
    if (!in_observed_step()) return;
  }
  auto document = parse(text);
  auto array = document.get_array();
  if (array.error() != simdjson::SUCCESS) return trace_.problems.add(Problem::bad_json, here(text));
  Elements elements(array.value_unsafe());
  std::string_view name;
  if (!elements.text(&name)) return trace_.problems.add(Problem::bad_json, here(text));
  if (const std::optional<EventKind> kind = event_kind(name)) return allocator_event(*kind, elements);
  if (name == "mark") return mark(elements);
  if (name == "tensor") return tensor(elements);
  if (name == "operator") return operator_call(elements);
  if (name == "operator_kind") return operator_kind(elements);
  vgpu_event(name, elements);
}

// A convolution is the whole call, or an operation of the graph that is executed.
void Reader::cudnn_call(std::string_view text) {
  auto document = parse(text);
  auto array = document.get_array();
  if (array.error() != simdjson::SUCCESS) return trace_.problems.add(Problem::bad_json, here(text));
  Elements elements(array.value_unsafe());
  od::object arguments;
  std::string_view name;
  if (!elements.skip() || !elements.skip() || !elements.text(&name) || elements.next().get_object().get(arguments) != simdjson::SUCCESS)
    return problem(Problem::bad_event, "a call of cuDNN");
  if (name.find("Convolution") != std::string_view::npos) return convolution(arguments, false);
  bool asked = false;
  each_field(arguments, [&](std::string_view key, auto value) {
    od::array operations;
    asked = asked || key == "asked";
    if (key != "operations" || value.get_array().get(operations) != simdjson::SUCCESS) return;
    for (auto operation : operations) {
      od::object fields;
      if (operation.get_object().get(fields) != simdjson::SUCCESS) return;
      convolution(fields, asked);
    }
  });
}

void Reader::convolution(od::object object, bool asked) {
  std::vector<int64_t> x, w;
  std::string type, operation;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "x") x = integers_of(value);
    if (key == "w") w = integers_of(value);
    if (key == "type") type = text_of(value);
    if (key == "op") operation = text_of(value);
  });
  // The gradient of a bias has no window; other operations of a graph are none either.
  if (operation.empty() ? w.empty() : operation.rfind("convolution", 0) != 0) return;
  add_convolution(x, w, type == "float32", &trace_.convolutions);
  if (asked) ++trace_.convolutions.asked;
}

void Reader::allocator_event(EventKind kind, Elements& elements) {
  AllocatorEvent event;
  event.kind = kind;
  int64_t stack = -1;
  bool ok = elements.address(&event.address) && elements.size(&event.size_bytes) && elements.address(&event.stream);
  ok = ok && event.size_bytes <= kMostBytes && (kind != EventKind::oom || event.address <= static_cast<uint64_t>(kMostBytes)) &&
       event.address <= UINT64_MAX - static_cast<uint64_t>(event.size_bytes);
  if (!ok) return problem(Problem::bad_event, "an allocator event");
  // A missing stack or time costs nothing that counts.
  if (elements.integer(&stack) && stack >= 0 && stack < INT32_MAX) event.stack = StackId(stack);
  (void)elements.integer(&event.time_us);
  trace_.events.push_back(event);
}

void Reader::mark(Elements& elements) {
  Mark mark;
  std::string_view kind;
  if (!elements.integer(&mark.sequence) || !elements.size(&mark.allocs) || !elements.size(&mark.frees) ||
      !elements.integer(&mark.time_us) || !elements.text(&kind)) {
    return problem(Problem::bad_event, "a mark");
  }
  if (mark.time_us < 0 || mark.time_us > kLastNs / 1000) mark.time_us = 0;
  mark.kind = mark_kind(kind);
  bool ok = true;
  switch (mark.kind) {
    case MarkKind::phase_begin:
    case MarkKind::phase_end: {
      std::string_view name;
      ok = elements.text(&name);
      mark.phase = marked_phase(name);
      break;
    }
    case MarkKind::module_begin:
    case MarkKind::module_end:
    case MarkKind::module_backward: {
      int64_t id = -1;
      ok = elements.integer(&id) && id < INT32_MAX;
      if (ok) mark.module = ModuleId(id);
      std::string_view node;
      if (mark.kind == MarkKind::module_backward && elements.text(&node)) mark.text = trace_.strings.intern(node);
      break;
    }
    case MarkKind::step:
      ok = elements.integer(&mark.step);
      if (ok && (!elements.size(&mark.cpu_us) || mark.cpu_us > kLastNs / 1000)) mark.cpu_us = 0;
      break;
    case MarkKind::exception: {
      std::string_view what;
      if (elements.text(&what)) mark.text = trace_.strings.intern(what);
      break;
    }
    case MarkKind::tensors:
    case MarkKind::stats_reset:
    case MarkKind::other:
      break;
  }
  if (!ok) return problem(Problem::bad_event, "a mark's value");
  trace_.marks.push_back(mark);
}

void Reader::tensor(Elements& elements) {
  TensorMark tensor;
  std::string_view kind, name;
  if (!elements.integer(&tensor.sequence) || !elements.text(&kind)) return problem(Problem::bad_event, "a tensor");
  tensor.kind = tensor_kind(kind);
  if (!elements.address(&tensor.address)) return problem(Problem::bad_event, "a tensor's address");
  int64_t module = -1;
  if (elements.size(&tensor.storage_bytes) && elements.text(&name)) {
    tensor.name = trace_.strings.intern(name);
    if (elements.integer(&module) && module >= 0 && module < INT32_MAX) tensor.module = ModuleId(module);
    std::string_view dtype;
    if (tensor.kind == TensorKind::input && elements.text(&dtype)) {
      tensor.dtype = trace_.strings.intern(dtype);
      const std::vector<int64_t> shape = integers_of(elements.next());
      if (!shape.empty()) tensor.shape = trace_.strings.intern(fmt::format("[{}]", fmt::join(shape, ", ")));
    }
  }
  trace_.tensors.push_back(tensor);
}

void Reader::vgpu_event(std::string_view name, Elements& elements) {
  VgpuEvent event;
  std::string_view library, what;
  bool ok = true;
  if (name == "vgpu_mark") {
    event.kind = VgpuEventKind::mark;
    ok = elements.address(&event.address);
    mark_ = static_cast<int64_t>(event.address);
  } else if (name == "memcpy") {
    Work copy;
    copy.kind = WorkKind::copy;
    uint64_t from = 0;
    ok = elements.integer(&copy.copy_kind) && elements.address(&event.address) && elements.address(&from) &&
         elements.size(&event.size_bytes);
    if (ok && in_observed_step() && event.size_bytes <= kMostBytes && elements.address(&copy.stream) && elements.size(&copy.time_ns) &&
        copy.time_ns < kMostNs) {
      copy.size_bytes = event.size_bytes;
      int64_t pageable = 0;
      copy.pageable = elements.integer(&pageable) && pageable == 1;
      add_work(copy);
    }
    if (ok && copy.copy_kind != 1) return;  // only copies from the host tell inputs apart
    event.kind = VgpuEventKind::copy_to_device;
  } else if (name == "workspace") {
    event.kind = VgpuEventKind::workspace;
    ok = elements.text(&library);
    if (ok) event.library = trace_.strings.intern(library);
    ok = ok && elements.address(&event.address) && elements.size(&event.size_bytes);
  } else if (name == "device_alloc" || name == "device_free") {
    event.kind = name == "device_alloc" ? VgpuEventKind::device_alloc : VgpuEventKind::device_free;
    ok = elements.address(&event.address) && elements.size(&event.size_bytes);
  } else if (name == "library_memory") {
    event.kind = VgpuEventKind::library_memory;
    ok = elements.text(&library);
    if (ok) event.library = trace_.strings.intern(library);
    ok = ok && elements.text(&what);
    if (ok) event.what = trace_.strings.intern(what);
    ok = ok && elements.integer(&event.size_bytes);
  } else if (name == "kernel_name") {
    int64_t id = 0;
    ok = elements.integer(&id) && elements.text(&what);
    if (ok) {
      KernelName& kernel = kernel_names_[id];
      kernel = {trace_.strings.intern(what)};
      int64_t registers = 0, shared = 0, local = 0;
      if (elements.size(&registers) && elements.size(&shared) && elements.size(&local) &&
          std::max({registers, shared, local}) <= INT32_MAX) {
        kernel.compiled = static_cast<int32_t>(trace_.observed.compiled.size());
        trace_.observed.compiled.push_back({static_cast<int>(registers), static_cast<int>(shared), static_cast<int>(local)});
      }
      return;
    }
  } else if (name == "thread") {
    ok = elements.integer(&thread_);
    if (ok) return;
  } else if (name == "captured") {
    ok = elements.size(&captured_ns_) && elements.integer(&captured_thread_) && captured_ns_ < kMostNs;
    if (!ok || !in_observed_step()) captured_ns_ = -1;
    if (ok) return;
  } else if (name == "kernel" || name == "call" || name == "memset") {
    if (!in_observed_step() || work(name, elements)) return;
    ok = false;
  } else if (name == "event_record" || name == "stream_wait" || name == "host_wait" || name == "graph") {
    ok = order(name, elements);
    if (ok) return;
  } else {
    return;  // what a later version adds
  }
  ok = ok && event.size_bytes <= kMostBytes && event.size_bytes >= -kMostBytes;
  if (!ok) return problem(Problem::bad_event, fmt::format("'{}'", name));
  trace_.vgpu_events.push_back(event);
}

// ---- one step's operators and work ---------------------------------------------------------------------------------------

void Reader::operator_kind(Elements& elements) {
  int64_t id = 0;
  std::string_view name, inputs;
  // Kinds are numbered as they come.
  if (!elements.integer(&id) || id != static_cast<int64_t>(trace_.observed.kinds.size()) || !elements.text(&name))
    return problem(Problem::bad_event, "'operator_kind'");
  const StringId name_id = trace_.strings.intern(name);
  od::array list;
  if (elements.next().get_array().get(list) != simdjson::SUCCESS || list.raw_json().get(inputs) != simdjson::SUCCESS)
    return problem(Problem::bad_event, "'operator_kind'");
  trace_.observed.kinds.push_back({name_id, trace_.strings.intern(inputs)});
}

void Reader::operator_call(Elements& elements) {
  OperatorCall call;
  int64_t kind = 0;
  const bool ok = elements.integer(&kind) && kind >= 0 && kind < static_cast<int64_t>(trace_.observed.kinds.size()) &&
                  elements.integer(&call.thread) && elements.size(&call.start_ns) && elements.size(&call.duration_ns) &&
                  call.start_ns < kMostNs && call.duration_ns < kMostNs &&
                  (trace_.observed.operators.empty() || trace_.observed.operators.back().start_ns <= call.start_ns);
  if (!ok) return problem(Problem::bad_event, "'operator'");
  call.kind = static_cast<uint32_t>(kind);
  trace_.observed.operators.push_back(call);
}

void Reader::observed_step(od::object object) {
  ObservedStep& observed = trace_.observed;
  std::vector<int64_t> marks, hooks;
  each_field(object, [&](std::string_view key, auto value) {
    if (key == "step") (void)set_int(value, &observed.step);
    if (key == "hooks_us") hooks = integers_of(value);
    if (key == "unix_ns") (void)set_int(value, &observed.unix_ns);
    if (key == "marks") marks = integers_of(value);
    if (key != "tf32") return;
    od::object flags;
    if (value.get_object().get(flags) != simdjson::SUCCESS) return;
    each_field(flags, [&](std::string_view flag, auto set) {
      if (flag == "cublas") set_bool(set, &observed.tf32_products);
      if (flag == "cudnn") set_bool(set, &observed.tf32_convolutions);
    });
  });
  if (observed.step < 1 || observed.unix_ns <= 0 || observed.unix_ns > kLastNs || marks.size() != 2 || marks[0] < 1 ||
      marks[1] < marks[0]) {
    observed.step = 0;
    return problem(Problem::bad_record, "'operators'");
  }
  for (size_t i = 1; i < hooks.size(); i += 2) observed.hooks_us[hooks[i - 1]] = std::clamp<int64_t>(hooks[i], 0, kLastNs / 1000);
  observed.first_mark = marks[0];
  observed.last_mark = marks[1];
}

void Reader::add_work(Work work) {
  work.thread = thread_;
  work.mark = mark_;
  work.captured_ns = captured_ns_;
  work.captured_thread = captured_thread_;
  captured_ns_ = -1;
  trace_.observed.work.push_back(std::move(work));
}

// What orders streams. Events count from the capture's begin on, since a step may wait for one of the step before.
bool Reader::order(std::string_view name, Elements& elements) {
  Order order;
  uint64_t first = 0, second = 0;
  if (!elements.address(&first) || !elements.address(&second) || !elements.size(&order.time_ns) || order.time_ns >= kMostNs) return false;
  order.work_before = trace_.observed.work.size();
  if (name == "event_record") {
    order.kind = OrderKind::event_record;
    order.event = first;
    order.stream = second;
    event_streams_[first] = second;
  } else if (name == "stream_wait") {
    order.kind = OrderKind::stream_wait;
    order.stream = first;
    order.event = second;
  } else if (name == "host_wait") {
    if (first > 2) return false;
    order.kind = first == 0 ? OrderKind::host_wait_stream : first == 1 ? OrderKind::host_wait_event : OrderKind::host_wait_device;
    (first == 1 ? order.event : order.stream) = second;
  } else {
    order.kind = first != 0 ? OrderKind::graph_begin : OrderKind::graph_end;
    order.stream = second;
  }
  if (!in_observed_step()) return true;
  if (order.kind == OrderKind::stream_wait || order.kind == OrderKind::host_wait_event) {
    const auto known = event_streams_.find(order.event);
    if (known == event_streams_.end()) return true;  // nothing was recorded: nothing waits
    order.recorded_on = known->second;
  }
  trace_.observed.order.push_back(order);
  return true;
}

// A line of the log inside of the observed step, behind its name. Logs of older captures have no times, and are never read here.
bool Reader::work(std::string_view name, Elements& elements) {
  Work work;
  uint64_t address = 0;
  int64_t number = 0;
  if (name == "kernel") {
    if (!elements.integer(&number)) return false;
    const auto known = kernel_names_.find(number);
    if (known != kernel_names_.end()) {
      work.name = known->second.name;
      work.compiled = known->second.compiled;
    }
    for (uint32_t* size :
         {work.grid.data(), work.grid.data() + 1, work.grid.data() + 2, work.block.data(), work.block.data() + 1, work.block.data() + 2}) {
      if (!elements.size(&number) || number > UINT32_MAX) return false;
      *size = static_cast<uint32_t>(number);
    }
    if (!elements.size(&work.size_bytes)) return false;
  } else if (name == "call") {
    std::string_view library, function, arguments;
    work.kind = WorkKind::call;
    if (!elements.text(&library)) return false;
    work.library = trace_.strings.intern(library);
    if (!elements.text(&function)) return false;
    work.name = trace_.strings.intern(function);
    od::object object;
    if (elements.next().get_object().get(object) != simdjson::SUCCESS || object.raw_json().get(arguments) != simdjson::SUCCESS)
      return false;
    work.arguments = trace_.strings.intern(arguments);
  } else {
    work.kind = WorkKind::memset;
    if (!elements.address(&address) || !elements.integer(&number) || !elements.size(&work.size_bytes)) return false;
  }
  if (work.size_bytes > kMostBytes || !elements.address(&work.stream)) return false;
  auto last = elements.next();
  od::array pointers;
  if (name == "kernel" && last.get_array().get(pointers) == simdjson::SUCCESS) {
    for (auto entry : pointers) {
      uint64_t pointer = 0;
      if (entry.get_uint64().get(pointer) != simdjson::SUCCESS) return false;
      work.pointers.push_back(pointer);
    }
    last = elements.next();
  }
  if (last.get_int64().get(work.time_ns) != simdjson::SUCCESS || work.time_ns < 0 || work.time_ns >= kMostNs) return false;
  add_work(std::move(work));
  return true;
}

// ---- records ----------------------------------------------------------------------------------------------------------

void Reader::record(std::string_view text) {
  auto document = parse(text);
  od::object object;
  std::string_view kind;
  if (document.get_object().get(object) != simdjson::SUCCESS || object["record"].get_string().get(kind) != simdjson::SUCCESS) {
    if (has_header_) trace_.problems.add(Problem::bad_json, here(text));
    return;
  }
  const std::string name(kind);
  if (object.reset().error() != simdjson::SUCCESS) return trace_.problems.add(Problem::bad_json, here(text));
  if (name == "header") {
    if (has_header_) {
      past_first_process_ = true;
      return problem(Problem::several_processes, "a second header");
    }
    has_header_ = true;
    return header(object);
  }
  if (!has_header_) return;
  if (name == "eof") {
    int64_t lines = -1;
    has_eof_ = true;
    if (!set_int(object["lines"], &lines)) return problem(Problem::bad_record, "'eof'");
    const auto before = static_cast<int64_t>(lines_.line_number()) - 1;
    if (lines != before) problem(Problem::lines_missing, fmt::format("it says {}, there are {}", lines, before));
    return;
  }
  if (past_first_process_) return;
  if (name == "process") {
    if (has_process_) {
      past_first_process_ = true;
      return problem(Problem::several_processes, "a second process");
    }
    has_process_ = true;
    return process(object);
  }
  if (name == "operators") return observed_step(object);
  if (name == "clock") {
    int64_t& clock = trace_.observed.clock_unix_ns;
    each_field(object, [&](std::string_view key, auto value) {
      if (key == "unix_ns") (void)set_int(value, &clock);
      if (key == "order") set_bool(value, &trace_.observed.has_order);
    });
    if (clock > 0 && clock <= kLastNs) return;
    clock = 0;
    return problem(Problem::bad_record, "'clock'");
  }
  if (name == "loader") {
    if (!read_loader(text, &trace_.loader)) problem(Problem::bad_record, "'loader'");
    return;
  }
  if (name == "stack") return stack(object);
  if (name == "module") return module(object);
  if (name == "end") return end(object);
  if (name == "command_end") return command_end(object);
  if (name == "warning") {
    CaptureWarning warning;
    each_field(object, [&](std::string_view key, auto value) {
      if (key == "code") warning.code = text_of(value);
      if (key == "message") warning.message = text_of(value);
    });
    trace_.warnings.push_back(std::move(warning));
  } else if (name == "unsupported") {
    UnsupportedCall call;
    each_field(object, [&](std::string_view key, auto value) {
      if (key == "library") call.library = text_of(value);
      if (key == "name") call.name = text_of(value);
      if (key == "count") (void)set_int(value, &call.count);
    });
    call.count = std::clamp<int64_t>(call.count, 1, 1'000'000'000);
    trace_.unsupported.push_back(std::move(call));
  } else if (name == "vgpu_end") {
    each_field(object, [&](std::string_view key, auto value) {
      if (key == "dropped") (void)set_int(value, &trace_.vgpu_lines_dropped);
      if (key == "peak_device_bytes") (void)set_int(value, &trace_.vgpu_peak_device_bytes);
    });
  }  // else: of a later version
}

void Reader::header(od::object object) {
  Header& h = trace_.header;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "schema_version") (void)set_int(value, &h.schema_version);
    if (key == "gpucast_version") h.gpucast_version = text_of(value);
    if (key == "source") h.source = text_of(value);
    if (key == "gpu_chosen") set_bool(value, &h.gpu_chosen);
    if (key == "enforce_capacity") set_bool(value, &h.enforce_capacity);
    if (key == "capacity_bytes") (void)set_int(value, &h.capacity_bytes);
    if (key == "steps_rule") h.steps_rule = text_of(value);
    if (key == "steps_requested") (void)set_int(value, &h.steps_requested);
    if (key == "run_s" && value.get_double().get(h.run_s) != simdjson::SUCCESS) h.run_s = 0;
    if (key == "folder") h.folder = text_of(value);
    if (key == "what_if") read_what_ifs(value, &h.what_if);
    if (key == "command") {
      od::array words;
      if (value.get_array().get(words) != simdjson::SUCCESS) return;
      for (auto word : words) h.command.push_back(text_of(word));
    }
    if (key == "gpu") {
      od::object gpu;
      if (value.get_object().get(gpu) != simdjson::SUCCESS) return;
      each_field(gpu, [&](std::string_view field, auto of_gpu) {
        int64_t number = 0;
        if (field == "id") h.gpu.id = text_of(of_gpu);
        if (field == "name") h.gpu.name = text_of(of_gpu);
        if (field == "total_memory_bytes") (void)set_int(of_gpu, &h.gpu.total_memory_bytes);
        if (field == "compute_capability") (void)std::sscanf(text_of(of_gpu).c_str(), "%d.%d", &h.gpu.compute_major, &h.gpu.compute_minor);
        if (field == "compute_major" && set_int(of_gpu, &number)) h.gpu.compute_major = static_cast<int>(number);
        if (field == "compute_minor" && set_int(of_gpu, &number)) h.gpu.compute_minor = static_cast<int>(number);
      });
    }
  });
  if (h.schema_version > kSchemaVersion) {
    throw Error(fmt::format("the capture has schema version {}, this gpucast reads up to {}", h.schema_version, kSchemaVersion),
                fmt::format("{}, line {}", trace_.path, lines_.line_number()),
                h.gpucast_version.empty() ? "use a newer gpucast" : fmt::format("use gpucast {} or newer", h.gpucast_version));
  }
  if (h.schema_version < 1) {
    throw Error("the capture's header has no schema_version", fmt::format("{}, line {}", trace_.path, lines_.line_number()),
                "capture again");
  }
  if (!whole) problem(Problem::bad_record, "'header'");
}

void Reader::process(od::object object) {
  Process& p = trace_.process;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "pid") (void)set_int(value, &p.pid);
    if (key == "rank") (void)set_int(value, &p.rank);
    if (key == "local_rank") (void)set_int(value, &p.local_rank);
    if (key == "world_size") (void)set_int(value, &p.world_size);
    if (key == "device") (void)set_int(value, &p.device);
    if (key == "python") p.python = text_of(value);
    if (key == "torch") p.torch = text_of(value);
    if (key == "cuda") p.cuda = text_of(value);
    if (key == "torch_folder") p.torch_folder = text_of(value);
    if (key == "alloc_conf") p.alloc_conf = text_of(value);
    if (key == "cudnn_required") p.cudnn_required = text_of(value);
    if (key == "cudnn_asked") p.cudnn_asked = text_of(value);
    if (key == "cudnn_not_asked") p.cudnn_not_asked = text_of(value);
    if (key == "what_if") read_what_ifs(value, &trace_.header.what_if);
  });
  if (!whole) problem(Problem::bad_record, "'process'");
}

void Reader::stack(od::object object) {
  int64_t id = -1;
  Stack stack;
  stack.first_frame = static_cast<uint32_t>(trace_.stack_frames.size());
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "id") (void)set_int(value, &id);
    if (key == "frames") {
      od::array frames;
      if (value.get_array().get(frames) != simdjson::SUCCESS) return;
      for (auto entry : frames) {
        od::array parts;
        if (entry.get_array().get(parts) != simdjson::SUCCESS) continue;
        Elements elements(parts);
        Frame frame;
        std::string_view file, function;
        if (!elements.text(&file)) continue;
        frame.file = trace_.strings.intern(file);
        if (elements.integer(&frame.line) && elements.text(&function)) frame.function = trace_.strings.intern(function);
        trace_.stack_frames.emplace_back(static_cast<int64_t>(trace_.frames.size()));
        trace_.frames.push_back(frame);
      }
    }
  });
  // Ids are dense; a wild one must not make us allocate without end.
  if (!whole || id < 0 || id > static_cast<int64_t>(lines_.line_number())) return problem(Problem::bad_record, "'stack'");
  stack.frame_count = static_cast<uint32_t>(trace_.stack_frames.size()) - stack.first_frame;
  if (trace_.stacks.size() <= static_cast<size_t>(id)) trace_.stacks.resize(static_cast<size_t>(id) + 1);
  trace_.stacks[static_cast<size_t>(id)] = stack;
}

void Reader::module(od::object object) {
  int64_t id = -1, parent = -1;
  Module module;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "id") (void)set_int(value, &id);
    if (key == "parent") (void)set_int(value, &parent);
    if (key == "name") module.name = trace_.strings.intern(text_of(value));
    if (key == "type") module.type = trace_.strings.intern(text_of(value));
  });
  if (!whole || id < 0 || id > static_cast<int64_t>(lines_.line_number())) return problem(Problem::bad_record, "'module'");
  if (parent >= 0 && parent < INT32_MAX) module.parent = ModuleId(parent);
  if (trace_.modules.size() <= static_cast<size_t>(id)) trace_.modules.resize(static_cast<size_t>(id) + 1);
  trace_.modules[static_cast<size_t>(id)] = module;
}

void Reader::command_end(od::object object) {
  CommandEnd& e = trace_.command_end;
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "exit_code") (void)set_int(value, &e.exit_code);
    if (key != "failed_ranks") return;
    od::array ranks;
    if (value.get_array().get(ranks) != simdjson::SUCCESS) return;
    for (auto entry : ranks) {
      od::object fields;
      if (entry.get_object().get(fields) != simdjson::SUCCESS) continue;
      FailedRank& rank = e.failed_ranks.emplace_back();
      each_field(fields, [&](std::string_view field, auto of_rank) {
        if (field == "rank") (void)set_int(of_rank, &rank.rank);
        if (field == "what") rank.what = text_of(of_rank);
      });
    }
  });
  if (!whole) problem(Problem::bad_record, "'command_end'");
}

void Reader::end(od::object object) {
  CaptureEnd& e = trace_.end;
  has_end_ = true;
  const auto set_optional = [](auto value, std::optional<int64_t>* out) {
    int64_t number = 0;
    if (set_int(value, &number)) *out = number;
  };
  const bool whole = each_field(object, [&](std::string_view key, auto value) {
    if (key == "reason") e.reason = text_of(value);
    if (key == "how") e.how = text_of(value);
    if (key == "exit_code") (void)set_int(value, &e.exit_code);
    if (key == "optimizer_steps") (void)set_int(value, &e.optimizer_steps);
    if (key == "torch_stats") {
      od::object stats;
      if (value.get_object().get(stats) != simdjson::SUCCESS) return;
      TorchStats& s = e.torch_stats.emplace();
      each_field(stats, [&](std::string_view field, auto of_stats) {
        if (field == "peak_allocated_bytes") set_optional(of_stats, &s.peak_allocated_bytes);
        if (field == "peak_reserved_bytes") set_optional(of_stats, &s.peak_reserved_bytes);
        if (field == "allocated_bytes") set_optional(of_stats, &s.allocated_bytes);
        if (field == "reserved_bytes") set_optional(of_stats, &s.reserved_bytes);
        if (field == "alloc_retries") (void)set_int(of_stats, &s.alloc_retries);
        if (field == "ooms") (void)set_int(of_stats, &s.ooms);
      });
    }
    if (key == "segments") {
      od::array segments;
      if (value.get_array().get(segments) != simdjson::SUCCESS) return;
      auto& list = e.segments.emplace();
      for (auto entry : segments) {
        od::array parts;
        if (entry.get_array().get(parts) != simdjson::SUCCESS) continue;
        Elements elements(parts);
        RecordedSegment segment;
        if (elements.address(&segment.address) && elements.size(&segment.size_bytes) && elements.address(&segment.stream))
          list.push_back(segment);
      }
    }
  });
  if (!whole) problem(Problem::bad_record, "'end'");
}

}  // namespace

StringId StringTable::intern(std::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  const StringId id(static_cast<int64_t>(strings_.size()));
  strings_.emplace_back(text);
  ids_.emplace(strings_.back(), id);
  return id;
}

Trace read_trace(const std::string& path, std::optional<int> device) {
  return looks_like_snapshot(path) ? read_snapshot(path, device) : Reader(path).read();
}

std::string module_label(const Trace& trace, ModuleId id) {
  if (!id.valid() || id.index() >= trace.modules.size()) return "";
  const Module& module = trace.modules[id.index()];
  const std::string_view name = trace.strings.text(module.name), type = trace.strings.text(module.type);
  if (name.empty()) return type.empty() ? "the model" : fmt::format("{} (the model)", type);
  return type.empty() ? std::string(name) : fmt::format("{} ({})", name, type);
}

}  // namespace gpucast
