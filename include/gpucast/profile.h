// A PyTorch Profiler trace (Kineto/Chrome JSON) in memory: the parts needed for a prediction, as plain structs.
//
// Repeated text (names, shapes) is kept once, as it is in the file; parse_dims() reads it on demand.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpucast/trace.h"

namespace gpucast {

// The kind of a time span. The trace's `cat`: cpu_op; user_annotation; python_function "nn.Module: ..."; any other python_function.
enum class SpanKind : uint8_t { op, annotation, module, function };

// A complete event ("ph": "X"). Times in nanoseconds since ProfileTrace::base_ns.
struct ProfileSpan {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t order = 0;                        // "Ev Idx"; if the file has none, the position in the file
  int64_t sequence_number = -1;             // op: links an operator to its backward; -1: none
  StringId name;                            // module: without "nn.Module: ", e.g. "Conv2d_3"
  StringId dims, types, strides, concrete;  // op: "Input Dims" and so on, JSON text as in the file; invalid: not recorded
  int32_t python_id = -1, python_parent = -1, module_id = -1;  // module, function
  uint32_t thread = 0;                                         // index of ProfileTrace::threads
  SpanKind kind = SpanKind::op;
};

// An instant event named [memory]: `bytes` > 0 an allocation, < 0 a free.
struct ProfileMemory {
  int64_t time_ns = 0;
  int64_t order = 0;
  uint64_t address = 0;  // 0: not in the file (2021 and before)
  int64_t bytes = 0;
  int64_t total_allocated_bytes = 0, total_reserved_bytes = 0;
  uint32_t thread = 0;
  int16_t device_type = 0, device_id = 0;  // type: 0 CPU, 1 CUDA (c10/core/DeviceType.h)
};

struct ProfileThread {
  int64_t pid = 0, tid = 0;
};

// Everything that can be wrong in a profile and still leaves something to report.
enum class ProfileProblem : uint8_t {
  truncated_file,    // ends in the middle: read up to there
  bad_event,         // an event that is not JSON, e.g. with unescaped quotes
  incomplete_event,  // JSON, but a needed field is missing or of the wrong type
  count_,
};
struct ProfileProblems {
  std::array<ProblemCount, static_cast<size_t>(ProfileProblem::count_)> rows{};
  void add(ProfileProblem problem, const std::string& where) {
    ProblemCount& row = rows[static_cast<size_t>(problem)];
    if (row.count++ == 0) row.first = where;
  }
  const ProblemCount& operator[](ProfileProblem problem) const { return rows[static_cast<size_t>(problem)]; }
};

struct ProfileTrace {
  std::string path;
  StringTable strings;
  std::vector<ProfileThread> threads;
  std::vector<ProfileSpan> spans;     // by (begin_ns, longer first)
  std::vector<ProfileMemory> memory;  // by (time_ns, order)
  int64_t base_ns = 0;                // the time of the earliest kept event, in the file's clock
  int64_t events_read = 0;            // of any kind
  int64_t cuda_kernels = 0;           // "kernel", "gpu_memcpy", "gpu_memset" events: the trace of a run on a GPU
  bool profile_memory = false, record_shapes = false, with_stack = false;  // the profiler's switches, from the file or its events
  std::string gpucast_json;  // the data that `gpucast profile` added: the text of the top-level key "gpucast", "" without it
  ProfileProblems problems;
};

// Whether the file begins like a Chrome trace ({ or [{ after white space), and not like a capture; plain or gzip.
bool looks_like_profile(const std::string& path);

// Reads in windows, so it needs memory only for what it keeps. Throws Error: the file cannot be read, or is not a Chrome trace.
ProfileTrace read_profile(const std::string& path);

// "[[4, 3, 86, 86], [], [64]]" -> {{4, 3, 86, 86}, {}, {64}}. A list of tensors is one level deeper and goes to `lists`.
struct DimsList {
  std::vector<std::vector<int64_t>> inputs;              // of each input; empty for scalars and lists
  std::vector<std::vector<std::vector<int64_t>>> lists;  // of each input: the tensors of a list input, else empty
};
DimsList parse_dims(std::string_view json);

// ["float", "long int", "", "Scalar"] -> the strings, unescaped. For types and concrete inputs.
std::vector<std::string> parse_texts(std::string_view json);

}  // namespace gpucast
