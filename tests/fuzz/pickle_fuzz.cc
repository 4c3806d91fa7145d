// Any bytes at all as a memory snapshot: an error, or a state before the first event and blocks that follow from it; never a
// crash. Built with clang and -DGPUCAST_FUZZ=ON:
//   build/fuzz/bin/pickle_fuzz -max_len=65536 CORPUS tests/fuzz/corpus/pickle     (new finds go to CORPUS)

#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "gpucast/error.h"
#include "src/base/alloc_conf.h"
#include "src/lifetime/lifetime.h"
#include "src/trace/read_snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gpucast::Trace;
  const int file = memfd_create("snapshot", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return -1;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  for (const std::optional<int> device : {std::optional<int>(), std::optional<int>(1)}) {
    try {
      Trace trace = gpucast::read_snapshot(path, device);
      const gpucast::AllocConf conf = gpucast::parse_alloc_conf(trace.process.alloc_conf, "");
      const gpucast::StartState start = gpucast::reconstruct_start(trace.events, trace.end_segments, conf, &trace.problems);
      // What is laid out must tile its segments.
      for (const gpucast::SnapshotSegment& segment : start.segments) {
        uint64_t at = segment.address;
        for (const gpucast::SnapshotBlock& block : segment.blocks) {
          if (block.address != at || block.size_bytes <= 0) __builtin_trap();
          at += static_cast<uint64_t>(block.size_bytes);
        }
        if (at != segment.address + static_cast<uint64_t>(segment.size_bytes)) __builtin_trap();
      }
      const gpucast::Lifetimes lifetimes = gpucast::follow_blocks(trace.events, conf, &trace.problems, start);
      (void)gpucast::compare_with_recorded(trace, lifetimes);
    } catch (const gpucast::Error&) {  // bad input, said so
    }
  }
  close(file);
  return 0;
}
