// Writes a file in Chrome's trace event format, for Perfetto and chrome://tracing: one JSON object for each event, written at once. Events
// have numbers of processes and threads; name_process() and name_thread() set the names that a viewer shows. Viewers sort by these numbers.
#pragma once

#include <fmt/format.h>

#include <cmath>
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

// Times as a trace has them. Slices that touch do so after rounding, too: viewers leave out slices that overlap.
struct TraceClock {
  double zero_ns = 0;
  [[nodiscard]] int64_t rounded_ns(double ns) const { return std::llround(ns - zero_ns); }
  [[nodiscard]] std::string time(double ns) const { return microseconds(rounded_ns(ns)); }
  [[nodiscard]] std::string length(double from_ns, double to_ns) const { return microseconds(rounded_ns(to_ns) - rounded_ns(from_ns)); }
};

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

  // Ends the file; at least one event was added. `about`: a JSON object of facts about the whole file. `fields`: further ones of the file's
  // object, without its braces. Throws Error if the disk is full.
  void finish(std::string_view about, std::string_view fields = "");

 private:
  void end_event();
  void flush_but_last_comma();

  std::ostream& out_;
  std::string bytes_;  // not yet written
};

}  // namespace gpucast
