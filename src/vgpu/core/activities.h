// What a profiler sees of a run with a clock (clock.h): the GPU's work and the API calls.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/vgpu/core/core.h"
namespace gpucast::vgpu {
enum class ActivityKind : uint8_t { kernel, copy, fill, call, wait };
struct Activity {
  ActivityKind kind;
  uint32_t correlation;      // of the runtime or driver API call that submitted it; for a graph's nodes: of the graph's launch
  int64_t start_ns, end_ns;  // since 1970, on the card's clock; equal to the machine's clock while activities are kept
  int device;
  uint32_t stream;   // id as CUPTI's streamId: 7 the default stream
  const char* name;  // kernel: mangled, or a library call's name ("cublasGemmEx"); call, wait: the API's function ("cudaLaunchKernel").
                     // Lives as long as the process
  bool driver;       // call: of the driver API
  unsigned grid[3], block[3];
  int registers;  // 0: not known, but see function
  size_t static_shared_bytes, dynamic_shared_bytes, local_bytes;
  const void* function;  // a kernel's handle; kernel_resources() (functions.h) gives its registers and shared memory; nullptr: none
  int copy_kind;         // as cudaMemcpyKind
  size_t size_bytes;     // of copies and fills
  bool pinned;           // copies: the host side is pinned memory
  uint64_t thread;       // call, wait: the thread as the kernel numbers it (gettid)
  uint64_t graph;        // executable graph's id, 0: none
  uint64_t event;        // wait: the event waited for, 0: a stream or the device; call: the event that it records
};
// Switches the keeping of activities on or off. While it is on, waits take real time, also under --warp. `on_call` is called in the thread
// of each API call, with the call's correlation, before its work is submitted.
GPUCAST_VGPU_API void record_activities(bool on, void (*on_call)(uint32_t correlation));
// The finished activities, each once, ordered by correlation.
GPUCAST_VGPU_API std::vector<Activity> take_activities();
// Whether this run has a clock. Without one there are no activities.
GPUCAST_VGPU_API bool has_clock();
}  // namespace gpucast::vgpu
