// State while a capture is read: the trace so far, and facts of earlier lines that later lines need. The functions that read a line change
// it (capture_records.h, capture_events.h, capture_log.h); read_trace.cc has the loop and the tables of these functions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gpucast/trace.h"
#include "src/base/gzip_lines.h"

namespace gpucast::capture {

constexpr int64_t kMostBytes = int64_t{1} << 44;        // 16 TiB: no card has that much memory, and sums stay within 64 bits
constexpr int64_t kLastNs = 4'000'000'000'000'000'000;  // since 1970: the year 2096
constexpr int64_t kMostNs = 1'000'000'000'000'000'000;  // 30 years

struct KernelName {
  StringId name;
  int32_t compiled = -1;  // index in ObservedStep::compiled
};

struct Arguments {
  std::string parameters;
  std::vector<int64_t> values;  // in ObservedStep::values
};

// State of the virtual GPU's log at the current line.
struct LogState {
  std::unordered_map<int64_t, KernelName> kernel_names;
  std::map<std::string, uint32_t, std::less<>> call_arguments;  // JSON -> index in ObservedStep::call_arguments
  std::unordered_map<uint64_t, uint64_t> event_streams;         // event -> the stream of its last record
  int64_t mark = 0, thread = 0;
  int64_t captured_ns = -1, captured_thread = 0;  // time and thread of the work in the next line
  Arguments arguments;                            // of the launch in the next line
};

struct Reading {
  explicit Reading(const std::string& path) : lines(path) { trace.path = path; }

  // "line 17 (byte 1234 of the uncompressed text)", and the first characters of the line.
  std::string describe_position(std::string_view text = "") const {
    std::string where = fmt::format("line {} (byte {} uncompressed)", lines.line_number(), lines.line_offset());
    if (!text.empty()) where += fmt::format(": {}{}", text.substr(0, 60), text.size() > 60 ? "..." : "");
    return where;
  }
  void problem(Problem problem, const std::string& what) {
    trace.problems.add(problem, what + (what.empty() ? "" : ", ") + describe_position());
  }
  bool in_observed_step() const { return log.mark >= trace.observed.first_mark && log.mark < trace.observed.last_mark; }

  GzipLines lines;
  std::string_view line;  // the current line
  Trace trace;
  LogState log;
  bool has_header = false, has_process = false, has_end = false, has_eof = false, past_first_process = false;
};

}  // namespace gpucast::capture
