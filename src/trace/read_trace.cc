// Capture file -> Trace. One pass over the lines. A line is an event ("[") or a record ("{"), and its name selects the function that reads
// it.

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/base/event_kind.h"
#include "src/base/gzip_lines.h"
#include "src/base/sorted_rows.h"
#include "src/trace/capture_events.h"
#include "src/trace/capture_json.h"
#include "src/trace/capture_log.h"
#include "src/trace/capture_reading.h"
#include "src/trace/capture_records.h"
#include "src/trace/read_snapshot.h"

namespace gpucast {
namespace capture {
namespace {

static_assert(GzipLines::kPadding >= simdjson::SIMDJSON_PADDING);

struct EventRow {
  std::string_view name;
  const char* (*read)(Reading& reading, Elements& elements);  // returns the part that it could not read; nullptr: all was read
};
// The allocator's events are in src/base/event_kind.h.
constexpr std::array kEvents = std::to_array<EventRow>({{"arguments", read_arguments},
                                                        {"call", read_call},
                                                        {"captured", read_captured},
                                                        {"device_alloc", read_device_alloc},
                                                        {"device_free", read_device_free},
                                                        {"event_record", read_event_record},
                                                        {"graph", read_graph},
                                                        {"host_wait", read_host_wait},
                                                        {"kernel", read_kernel},
                                                        {"kernel_code", read_kernel_code},
                                                        {"kernel_name", read_kernel_name},
                                                        {"library_memory", read_library_memory},
                                                        {"mark", read_mark},
                                                        {"memcpy", read_memcpy},
                                                        {"memset", read_memset},
                                                        {"operator", read_operator_call},
                                                        {"operator_kind", read_operator_kind},
                                                        {"stream_wait", read_stream_wait},
                                                        {"tensor", read_tensor},
                                                        {"thread", read_thread},
                                                        {"values", read_values},
                                                        {"vgpu_mark", read_vgpu_mark},
                                                        {"workspace", read_workspace}});
static_assert(has_sorted_names(kEvents));

struct RecordRow {
  std::string_view name;
  void (*read)(Reading& reading, od::object object);
};
constexpr std::array kRecords = std::to_array<RecordRow>({{"clock", read_clock},
                                                          {"command_end", read_command_end},
                                                          {"communicators", read_communicators},
                                                          {"end", read_end},
                                                          {"eof", read_eof},
                                                          {"header", read_header},
                                                          {"holders", read_holders},
                                                          {"loader", read_loader_record},
                                                          {"module", read_module},
                                                          {"operators", read_observed_step},
                                                          {"process", read_process},
                                                          {"stack", read_stack},
                                                          {"unobserved_steps", read_unobserved_steps},
                                                          {"unsupported", read_unsupported},
                                                          {"vgpu_end", read_vgpu_end},
                                                          {"warning", read_warning}});
static_assert(has_sorted_names(kRecords));

// In a program without any backward, forwards without gradients are the program's purpose, not an evaluation between training steps.
void count_evaluation_as_forward(std::vector<Mark>* marks) {
  const auto trains = [](const Mark& mark) { return mark.kind == MarkKind::phase_begin && mark.phase == MarkedPhase::backward; };
  if (std::any_of(marks->begin(), marks->end(), trains)) return;
  for (Mark& mark : *marks) {
    if (mark.phase == MarkedPhase::evaluation) mark.phase = MarkedPhase::forward;
  }
}

class CaptureReader {
 public:
  explicit CaptureReader(const std::string& path) : reading_(path) {}

  Trace read();

 private:
  void read_event(std::string_view text);
  void read_record(std::string_view text);
  std::optional<Elements> elements_of(std::string_view text);
  simdjson::simdjson_result<od::document>& parse(std::string_view text) {
    return document_ = parser_.iterate(text.data(), text.size(), text.size() + GzipLines::kPadding);
  }
  void check_end();
  [[noreturn]] void not_a_capture(std::string_view first_line) const;

  Reading reading_;
  od::parser parser_;
  simdjson::simdjson_result<od::document> document_;  // of the current line
};

Trace CaptureReader::read() {
  std::string_view text;
  while (reading_.lines.next(&text)) {
    if (text.empty()) continue;
    reading_.line = text;
    if (!reading_.has_header) {
      if (text.front() == '{') read_record(text);
      if (!reading_.has_header) not_a_capture(text);
      continue;
    }
    if (reading_.has_eof) {
      reading_.trace.problems.add(Problem::lines_missing, "lines after the end line, " + reading_.describe_position());
      break;
    }
    if (text.front() != '[') {
      read_record(text);
    } else if (!reading_.past_first_process) {
      read_event(text);
    }
  }
  check_end();
  count_evaluation_as_forward(&reading_.trace.marks);
  return std::move(reading_.trace);
}

// The elements of an event's line. Counts a line that is not JSON as a problem.
std::optional<Elements> CaptureReader::elements_of(std::string_view text) {
  auto array = parse(text).get_array();
  if (array.error() == simdjson::SUCCESS) return Elements(array.value_unsafe());
  reading_.trace.problems.add(Problem::bad_json, reading_.describe_position(text));
  return std::nullopt;
}

void CaptureReader::read_event(std::string_view text) {
  // Most lines of a capture are launches. Outside of the observed step they are only counted.
  if (text.starts_with("[\"kernel\"")) {
    ++reading_.trace.kernels;
    if (!reading_.in_observed_step()) return;
  }
  if (text.starts_with("[\"call\"")) {
    ++reading_.trace.library_calls;
    if (text.substr(0, 20).find("\"cudnn\"") != std::string_view::npos && text.find("onvolution") != std::string_view::npos) {
      std::optional<Elements> elements = elements_of(text);
      const char* const bad = elements ? read_convolutions(reading_, *elements) : nullptr;
      if (bad) reading_.problem(Problem::bad_event, bad);
    }
    if (!reading_.in_observed_step()) return;
  }
  std::optional<Elements> elements = elements_of(text);
  if (!elements) return;
  std::string_view name;
  if (!elements->text(&name)) return reading_.trace.problems.add(Problem::bad_json, reading_.describe_position(text));
  const char* bad = nullptr;
  if (const std::optional<EventKind> kind = event_kind(name)) {
    bad = read_allocator_event(reading_, *kind, *elements);
  } else if (const EventRow* row = find_row(kEvents, name)) {
    bad = row->read(reading_, *elements);
  }  // else: an event of a later version
  if (bad) reading_.problem(Problem::bad_event, bad);
}

void CaptureReader::read_record(std::string_view text) {
  od::object object;
  std::string_view name;
  if (parse(text).get_object().get(object) != simdjson::SUCCESS || object["record"].get_string().get(name) != simdjson::SUCCESS) {
    if (reading_.has_header) reading_.trace.problems.add(Problem::bad_json, reading_.describe_position(text));
    return;
  }
  const RecordRow* row = find_row(kRecords, name);
  if (object.reset().error() != simdjson::SUCCESS) return reading_.trace.problems.add(Problem::bad_json, reading_.describe_position(text));
  if (!row) return;  // a record of a later version
  // Records of a second process are left out.
  const bool always = row->read == read_header || (row->read == read_eof && reading_.has_header);
  if (always || (reading_.has_header && !reading_.past_first_process)) row->read(reading_, object);
}

// Notes problems at the end of the file. Throws Error when the capture has nothing useful.
void CaptureReader::check_end() {
  const std::string stopped = fmt::format("{}, byte {} of the file, after line {}", reading_.trace.path, reading_.lines.file_offset(),
                                          reading_.lines.line_number());
  if (!reading_.has_header) {
    if (reading_.lines.end() == GzipLines::End::corrupt)
      throw Error("the file is damaged", stopped, "copy it again (in binary mode), or capture again");
    not_a_capture("");
  }
  if (reading_.lines.end() == GzipLines::End::truncated) reading_.trace.problems.add(Problem::truncated_file, stopped);
  if (reading_.lines.end() == GzipLines::End::corrupt) reading_.trace.problems.add(Problem::damaged_file, stopped);
  if (reading_.lines.end() == GzipLines::End::complete && !reading_.has_eof) reading_.trace.problems.add(Problem::no_eof, stopped);
  const bool whole = reading_.has_eof;
  if (reading_.trace.events.empty() && !whole) {
    throw Error("the capture is cut off before the first allocation: there is nothing to report", stopped,
                "capture again: `gpucast run -o FILE -- COMMAND`");
  }
  if (!reading_.has_process) reading_.trace.problems.add(Problem::no_process, "");
  if (!reading_.has_end && whole) reading_.trace.problems.add(Problem::no_end, "");
}

void CaptureReader::not_a_capture(std::string_view first_line) const {
  const auto starts = [&](std::string_view prefix) { return first_line.substr(0, prefix.size()) == prefix; };
  std::string what = "not a gpucast capture";
  std::string hint = "a capture is what `gpucast run -o FILE -- COMMAND` writes";
  if (first_line.empty() && reading_.lines.line_number() == 0) {
    what = reading_.lines.file_offset() == 0 ? "the file is empty" : "the file holds no complete line";
    hint = "capture again: " + hint;
  } else if (starts("\x80")) {
    hint = "this looks like a Python pickle of a protocol that is not read, or one from a pipe: a memory snapshot must be a file; " + hint;
  } else if (starts("PK")) {
    hint = "this looks like a zip archive or a PyTorch checkpoint; " + hint;
  } else if (first_line.find("traceEvents") != std::string_view::npos || starts("{\"schemaVersion")) {
    hint = "this looks like a Chrome trace, which is not read yet; " + hint;
  }
  throw Error(what, fmt::format("{}, byte 0", reading_.trace.path), hint);
}

}  // namespace
}  // namespace capture

Trace read_trace(const std::string& path, std::optional<int> device) {
  return looks_like_snapshot(path) ? read_snapshot(path, device) : capture::CaptureReader(path).read();
}

}  // namespace gpucast
