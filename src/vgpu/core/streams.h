// Streams and events: what the runtime (libs/cudart*.cc) and the driver (libs/cuda*.cc) share.
//
// Without a clock (clock.h) all work is done at the moment of its submission, so streams never wait. There are two exceptions:
// gpucast_vgpu_hold_stream (core.h) and posts of other ranks (stream_awaits). The state kept here is what programs query: handles, the
// order of events on a virtual clock, and which streams are being captured into which graph.
//
// Functions return the codes that cudaError_t and CUresult share. Handles are numbers, never pointers to state: an unknown handle is an
// error code, not a crash.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/vgpu/core/board.h"
#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

enum Code : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kNotReady = 600,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnmatched = 903,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
};

struct HostFunction {
  void (*function)(void*);
  void* data;
};

// ---- Streams: 0 and 1 are the default stream, 2 the per-thread default stream -------------------------------------------
struct StreamInfo {
  unsigned flags;
  int priority;
  uint64_t id;
  int device;  // of the default streams: the calling thread's current one
};
GPUCAST_VGPU_API uint64_t stream_create(unsigned flags, int priority);
GPUCAST_VGPU_API int stream_destroy(uint64_t stream);
GPUCAST_VGPU_API int stream_info(uint64_t stream, StreamInfo* info);
// Waiting for a captured stream ends its capture with an error, as on a card.
GPUCAST_VGPU_API int stream_synchronize(uint64_t stream);
GPUCAST_VGPU_API int stream_query(uint64_t stream);
GPUCAST_VGPU_API int device_synchronize();
// Logs that the host waits for the stream here.
GPUCAST_VGPU_API void log_host_wait(uint64_t stream);
// Work on the stream needs the post of another rank. The host waits for the post when it synchronizes with the stream, a later event or the
// device. Queries and cudaFree treat the work as done, so that memory does not depend on the speed of the other ranks. A query of an event
// right after a barrier is the exception.
GPUCAST_VGPU_API void stream_awaits(uint64_t stream, const Arrival& arrival);
// Finishes all work, as cudaFree does. It ends no capture.
GPUCAST_VGPU_API void finish_all_work();

// ---- Events ---------------------------------------------------------------------------------------------------------------
constexpr unsigned kEventDisableTiming = 2;  // the flag of both APIs
GPUCAST_VGPU_API uint64_t event_create(unsigned flags);
GPUCAST_VGPU_API int event_destroy(uint64_t event);
GPUCAST_VGPU_API int event_record(uint64_t event, uint64_t stream);
GPUCAST_VGPU_API int event_query(uint64_t event);
GPUCAST_VGPU_API int event_synchronize(uint64_t event);
GPUCAST_VGPU_API int stream_wait_event(uint64_t stream, uint64_t event);
// In time of the card's clock. Without a clock, a virtual one that advances 0.1 ms with each kernel, library call, copy or memset: the same
// in every run.
GPUCAST_VGPU_API int event_elapsed(uint64_t from, uint64_t to, float* elapsed_ms);

// Calls the function once the stream reaches it. Without a clock it is called at once.
GPUCAST_VGPU_API void call_host(HostFunction host, uint64_t stream);

}  // namespace gpucast::vgpu
