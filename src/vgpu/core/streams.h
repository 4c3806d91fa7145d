// Streams and events: what the runtime (libs/cudart*.cc) and the driver (libs/cuda*.cc) share.
//
// Without a clock (clock.h) all work is over the moment it is asked for, so streams never wait (but for gpucast_vgpu_hold_stream, see
// core.h, and for what other ranks bring, see stream_awaits). What is kept is what programs ask about: handles, the order of events on a
// virtual clock, and which streams are being captured into which graph.
//
// Functions return the codes that cudaError_t and CUresult have in common. Handles are numbers, never pointers to state:
// an unknown one is an error code, not a crash.
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
// A captured stream cannot be waited for: that ends its capture with an error, as on a card.
GPUCAST_VGPU_API int stream_synchronize(uint64_t stream);
GPUCAST_VGPU_API int stream_query(uint64_t stream);
GPUCAST_VGPU_API int device_synchronize();
// Logs that the host waits here for the stream.
GPUCAST_VGPU_API void log_host_wait(uint64_t stream);
// Work on the stream needs what another rank brings. The host waits for it when it synchronizes with the stream, an event behind it or the
// device; queries (but of an event right behind a barrier) and cudaFree say that all is over, so that memory does not depend on how fast
// the other ranks are.
GPUCAST_VGPU_API void stream_awaits(uint64_t stream, const Arrival& arrival);
// What cudaFree waits for. No capture ends by it.
GPUCAST_VGPU_API void finish_all_work();

// ---- Events ---------------------------------------------------------------------------------------------------------------
constexpr unsigned kEventDisableTiming = 2;  // the flag of both APIs
GPUCAST_VGPU_API uint64_t event_create(unsigned flags);
GPUCAST_VGPU_API int event_destroy(uint64_t event);
GPUCAST_VGPU_API int event_record(uint64_t event, uint64_t stream);
GPUCAST_VGPU_API int event_query(uint64_t event);
GPUCAST_VGPU_API int event_synchronize(uint64_t event);
GPUCAST_VGPU_API int stream_wait_event(uint64_t stream, uint64_t event);
// On the card's clock; without one on a clock that moves by 0.1 ms for each kernel, library call, copy or memset: the same in every run.
GPUCAST_VGPU_API int event_elapsed(uint64_t from, uint64_t to, float* elapsed_ms);

// Calls it once the stream comes to it: at once, where there is no clock.
GPUCAST_VGPU_API void call_host(HostFunction host, uint64_t stream);

}  // namespace gpucast::vgpu
