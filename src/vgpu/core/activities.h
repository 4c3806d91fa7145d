// What a profiler is told of the work and the calls of a run with a clock (clock.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/vgpu/core/core.h"
namespace gpucast::vgpu {
enum class ActivityKind : uint8_t { kernel, copy, fill, call, wait };
struct Activity {
  ActivityKind kind;
  uint32_t correlation;      // of the call (runtime or driver API) that asked for it; of a graph's nodes: that of its launch
  int64_t start_ns, end_ns;  // since 1970, on the card's clock, which is the machine's as long as activities are kept
  int device;
  uint32_t stream;   // id as CUPTI's streamId: 7 the default stream
  const char* name;  // kernel: mangled, or a library call's name ("cublasGemmEx"); call, wait: the API's function ("cudaLaunchKernel").
                     // Lives as long as the process
  bool driver;       // call: of the driver API
  unsigned grid[3], block[3];
  int registers;  // 0: not known, but see function
  size_t static_shared_bytes, dynamic_shared_bytes, local_bytes;
  const void* function;  // a kernel's handle, of which kernel_resources() (functions.h) says what it takes; nullptr: none
  int copy_kind;         // as cudaMemcpyKind
  size_t size_bytes;     // of copies and fills
  bool pinned;           // copies: the host's side is
  uint64_t thread;       // call, wait: the thread as the kernel numbers it (gettid)
  uint64_t graph;        // executable graph's id, 0: none
  uint64_t event;        // wait: on this event, 0: on the stream or the device; call: that records it
};
// From now on activities are kept, or no longer; while they are, waiting is real also under --warp. `on_call` is called in the thread of
// each API call, with its correlation, before its work is asked for.
GPUCAST_VGPU_API void record_activities(bool on, void (*on_call)(uint32_t correlation));
// Those that are over, each once, in the order of correlations.
GPUCAST_VGPU_API std::vector<Activity> take_activities();
// Whether this run has a clock at all: without, no activity ever comes.
GPUCAST_VGPU_API bool has_clock();
}  // namespace gpucast::vgpu
