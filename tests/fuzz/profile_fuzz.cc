// Any bytes at all as a profiler trace: an error, or a trace whose parts fit together and that does not depend on the windows it is read
// in; never a crash. Built with clang and -DGPUCAST_FUZZ=ON:
//   build/fuzz/bin/profile_fuzz -max_len=16384 CORPUS tests/fuzz/corpus/profile     (new finds go to CORPUS)

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "gpucast/error.h"
#include "src/trace/read_profile.h"

namespace {

using namespace gpucast;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check(const ProfileTrace& trace) {
  const auto known = [&](StringId id) { return !id.valid() || id.index() < trace.strings.size(); };
  for (const ProfileSpan& span : trace.spans) {
    require(span.begin_ns >= 0 && span.begin_ns <= span.end_ns && span.thread < trace.threads.size());
    require(span.name.valid() && known(span.name) && known(span.dims) && known(span.types) && known(span.strides) && known(span.concrete));
    const DimsList dims = parse_dims(trace.strings.text(span.dims));
    require(dims.inputs.size() == dims.lists.size());
    (void)parse_texts(trace.strings.text(span.concrete));
  }
  for (const ProfileMemory& memory : trace.memory) require(memory.time_ns >= 0 && memory.thread < trace.threads.size());
  require(std::is_sorted(trace.spans.begin(), trace.spans.end(), [](const ProfileSpan& a, const ProfileSpan& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  }));
  require(std::is_sorted(trace.memory.begin(), trace.memory.end(),
                         [](const ProfileMemory& a, const ProfileMemory& b) { return a.time_ns < b.time_ns; }));
}

std::optional<ProfileTrace> read(const std::string& path, size_t window_bytes) {
  try {
    return read_profile(path, window_bytes);
  } catch (const Error& error) {
    require(std::string(error.what()).find("internal error") == std::string::npos);
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = memfd_create("profile", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return -1;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  looks_like_profile(path);
  const std::optional<ProfileTrace> trace = read(path, 1 << 16);
  const std::optional<ProfileTrace> again = read(path, 61);
  require(trace.has_value() == again.has_value());
  if (trace) {
    check(*trace);
    require(trace->spans.size() == again->spans.size() && trace->memory.size() == again->memory.size());
    require(trace->events_read == again->events_read && trace->gpucast_json == again->gpucast_json);
    for (size_t i = 0; i < trace->problems.rows.size(); ++i) require(trace->problems.rows[i].count == again->problems.rows[i].count);
  }
  close(file);
  return 0;
}
