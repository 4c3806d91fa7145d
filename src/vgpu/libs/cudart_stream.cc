// CUDA runtime: streams, events, capture.
#include "src/vgpu/core/pools.h"
#include "src/vgpu/libs/cudart.h"

using namespace gpucast::vgpu;

// ---- Streams --------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaStreamCreateWithPriority(uint64_t* stream, unsigned flags, int priority) {
  if (stream == nullptr || flags > 1) return cudart_return(cudaErrorInvalidValue);
  *stream = stream_create(flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
  return cudaSuccess;
}
CUDART_API int cudaStreamCreateWithFlags(uint64_t* stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
CUDART_API int cudaStreamCreate(uint64_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
CUDART_API int cudaStreamDestroy(uint64_t stream) { return cudart_return(stream_destroy(stream)); }
CUDART_API int cudaStreamSynchronize(uint64_t stream) {
  pools_synchronize();
  return cudart_return(stream_synchronize(stream));
}
CUDART_API int cudaStreamQuery(uint64_t stream) { return cudart_return(stream_query(stream)); }
CUDART_API int cudaStreamWaitEvent(uint64_t stream, uint64_t event, unsigned) { return cudart_return(stream_wait_event(stream, event)); }
CUDART_API int cudaStreamGetPriority(uint64_t stream, int* priority) {
  StreamInfo info;
  if (priority == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  *priority = info.priority;
  return cudaSuccess;
}
CUDART_API int cudaStreamGetFlags(uint64_t stream, unsigned* flags) {
  StreamInfo info;
  if (flags == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  *flags = info.flags;
  return cudaSuccess;
}
CUDART_API int cudaStreamGetId(uint64_t stream, unsigned long long* id) {
  StreamInfo info;
  if (id == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  *id = info.id;
  return cudaSuccess;
}
#if GPUCAST_CUDA == 13
CUDART_API int cudaStreamGetDevice(uint64_t stream, int* device) {
  StreamInfo info;
  if (device == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = stream_info(stream, &info)) return cudart_return(problem);
  *device = info.device;
  return cudaSuccess;
}
#endif
CUDART_API int cudaStreamCopyAttributes(uint64_t, uint64_t) { return cudaSuccess; }
CUDART_API int cudaStreamSetAttribute(uint64_t, int, const void*) { return cudaSuccess; }
CUDART_API int cudaStreamAttachMemAsync(uint64_t, void*, size_t, unsigned) { return cudaSuccess; }

// ---- Events ---------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaEventCreateWithFlags(uint64_t* event, unsigned flags) {
  if (event == nullptr) return cudart_return(cudaErrorInvalidValue);
  *event = event_create(flags);
  return cudaSuccess;
}
CUDART_API int cudaEventCreate(uint64_t* event) { return cudaEventCreateWithFlags(event, 0); }
CUDART_API int cudaEventDestroy(uint64_t event) { return cudart_return(event_destroy(event)); }
CUDART_API int cudaEventRecord(uint64_t event, uint64_t stream) { return cudart_return(event_record(event, stream)); }
CUDART_API int cudaEventRecordWithFlags(uint64_t event, uint64_t stream, unsigned) { return cudart_return(event_record(event, stream)); }
CUDART_API int cudaEventQuery(uint64_t event) { return cudart_return(event_query(event)); }
CUDART_API int cudaEventSynchronize(uint64_t event) {
  pools_synchronize();
  return cudart_return(event_synchronize(event));
}
CUDART_API int cudaEventElapsedTime(float* elapsed_ms, uint64_t from, uint64_t to) {
  return cudart_return(event_elapsed(from, to, elapsed_ms));
}

// ---- Capture --------------------------------------------------------------------------------------------------------------------

CUDART_API int cudaStreamBeginCapture(uint64_t stream, int mode) { return cudart_return(capture_begin(stream, mode, 0)); }
CUDART_API int cudaStreamBeginCaptureToGraph(uint64_t stream, uint64_t graph, const uint64_t* nodes, const void*, size_t count, int mode) {
  if (graph == 0) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = capture_begin(stream, mode, graph)) return cudart_return(problem);
  return cudart_return(capture_update_dependencies(stream, nodes, count, true));
}
CUDART_API int cudaStreamEndCapture(uint64_t stream, uint64_t* graph) { return cudart_return(capture_end(stream, graph)); }
CUDART_API int cudaThreadExchangeStreamCaptureMode(int* mode) {
  if (mode == nullptr || *mode < 0 || *mode > 2) return cudart_return(cudaErrorInvalidValue);
  *mode = capture_exchange_mode(*mode);
  return cudaSuccess;
}
CUDART_API int cudaStreamIsCapturing(uint64_t stream, int* status) {
  CaptureInfo info;
  if (status == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = capture_info(stream, &info)) return cudart_return(problem);
  *status = info.status;
  return cudaSuccess;
}

namespace {
int get_capture_info(uint64_t stream, int* status, unsigned long long* id, uint64_t* graph, const uint64_t** nodes, const void** edges,
                     size_t* count) {
  CaptureInfo info;
  if (status == nullptr) return cudart_return(cudaErrorInvalidValue);
  if (const int problem = capture_info(stream, &info)) return cudart_return(problem);
  *status = info.status;
  if (info.status != kCaptureActive) return cudaSuccess;
  if (id != nullptr) *id = info.id;
  if (graph != nullptr) *graph = info.graph;
  if (nodes != nullptr) *nodes = info.dependencies;
  if (edges != nullptr) *edges = nullptr;  // edges carry no data here
  if (count != nullptr) *count = info.dependency_count;
  return cudaSuccess;
}
}  // namespace

#if GPUCAST_CUDA == 12
CUDART_API int cudaStreamGetCaptureInfo(uint64_t stream, int* status, unsigned long long* id) {
  return get_capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
CUDART_API int cudaStreamGetCaptureInfo_v2(uint64_t stream, int* status, unsigned long long* id, uint64_t* graph, const uint64_t** nodes,
                                           size_t* count) {
  return get_capture_info(stream, status, id, graph, nodes, nullptr, count);
}
CUDART_API int cudaStreamGetCaptureInfo_v3(uint64_t stream, int* status, unsigned long long* id, uint64_t* graph, const uint64_t** nodes,
                                           const void** edges, size_t* count) {
  return get_capture_info(stream, status, id, graph, nodes, edges, count);
}
CUDART_API int cudaStreamUpdateCaptureDependencies(uint64_t stream, uint64_t* nodes, size_t count, unsigned flags) {
  return cudart_return(capture_update_dependencies(stream, nodes, count, flags == 1));
}
CUDART_API int cudaStreamUpdateCaptureDependencies_v2(uint64_t stream, uint64_t* nodes, const void*, size_t count, unsigned flags) {
  return cudart_return(capture_update_dependencies(stream, nodes, count, flags == 1));
}
#else
CUDART_API int cudaStreamGetCaptureInfo(uint64_t stream, int* status, unsigned long long* id, uint64_t* graph, const uint64_t** nodes,
                                        const void** edges, size_t* count) {
  return get_capture_info(stream, status, id, graph, nodes, edges, count);
}
CUDART_API int cudaStreamUpdateCaptureDependencies(uint64_t stream, uint64_t* nodes, const void*, size_t count, unsigned flags) {
  return cudart_return(capture_update_dependencies(stream, nodes, count, flags == 1));
}
#endif
