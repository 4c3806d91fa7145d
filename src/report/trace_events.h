// Writes a file in Chrome's trace event format, for Perfetto and chrome://tracing: one JSON object for each event, written at once. Events
// have numbers of processes and threads; name_process() and name_thread() set the names that a viewer shows. Viewers sort by these numbers.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace gpucast {

// `text` as a JSON string, quoted and escaped. What is not UTF-8 is replaced.
std::string json_text(std::string_view text);

// Trace events count in microseconds.
std::string microseconds(int64_t ns);

class TraceEvents {
 public:
  explicit TraceEvents(std::ostream& out);

  // `format` gives one event, as a JSON object.
  template <class... Args>
  void add_event(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(bytes_), format, std::forward<Args>(args)...);
    end_event();
  }

  void name_process(int process, std::string_view name);
  void name_thread(int process, int thread, std::string_view name);

  // Ends the file; at least one event was added. `about`: a JSON object of facts about the whole file. Throws Error if the disk is full.
  void finish(std::string_view about);

 private:
  void end_event();
  void flush_but_last_comma();

  std::ostream& out_;
  std::string bytes_;  // not yet written
};

}  // namespace gpucast
