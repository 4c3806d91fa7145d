// Measures how fast a profiler trace is read, and the memory in addition to the trace itself: GPUCAST_BENCH_PROFILE=FILE.
// bench/profile_reader.py makes the file and checks the answer.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>

#include "gpucast/profile.h"

namespace gpucast {
namespace {

// The memory of the trace itself, without unused capacity of its vectors.
int64_t kept_bytes(const ProfileTrace& trace) {
  size_t bytes = trace.spans.size() * sizeof(ProfileSpan) + trace.memory.size() * sizeof(ProfileMemory);
  for (size_t i = 0; i < trace.strings.size(); ++i)
    bytes += sizeof(std::string) + trace.strings.text(StringId(static_cast<int64_t>(i))).size();
  return static_cast<int64_t>(bytes);
}

void BM_ReadProfile(benchmark::State& state) {
  const char* path = std::getenv("GPUCAST_BENCH_PROFILE");
  if (path == nullptr) {
    state.SkipWithError("no GPUCAST_BENCH_PROFILE");
    return;
  }
  ProfileTrace trace;
  for (auto _ : state) {
    trace = ProfileTrace();  // frees the last one, so that there are never two in memory
    trace = read_profile(path);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(std::filesystem::file_size(path)));
  int64_t kinds[4] = {}, sum_bytes = 0;
  for (const ProfileSpan& span : trace.spans) ++kinds[static_cast<int>(span.kind)];
  for (const ProfileMemory& memory : trace.memory) sum_bytes += memory.bytes;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto count = [&](const char* name, int64_t value) { state.counters[name] = static_cast<double>(value); };
  count("events", trace.events_read);
  count("ops", kinds[static_cast<int>(SpanKind::op)]);
  count("annotations", kinds[static_cast<int>(SpanKind::annotation)]);
  count("modules", kinds[static_cast<int>(SpanKind::module)]);
  count("functions", kinds[static_cast<int>(SpanKind::function)]);
  count("memory", static_cast<int64_t>(trace.memory.size()));
  count("sum_bytes", sum_bytes);
  count("kept_bytes", kept_bytes(trace));
  count("peak_rss_bytes", usage.ru_maxrss * 1024);
}
BENCHMARK(BM_ReadProfile)->Unit(benchmark::kMillisecond)->Iterations(5);

}  // namespace
}  // namespace gpucast
