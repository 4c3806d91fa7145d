// CUDA driver: streams, events, capture, graphs.
#include "src/vgpu/core/pools.h"
#include "src/vgpu/libs/cuda_driver.h"

using namespace gpucast::vgpu;

CUDA_API int cuStreamCreateWithPriority(uint64_t* stream, unsigned flags, int priority) {
  if (stream == nullptr || flags > 1) return kInvalidValue;
  *stream = stream_create(flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
  return kSuccess;
}
CUDA_API int cuStreamCreate(uint64_t* stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
CUDA_API int cuStreamDestroy_v2(uint64_t stream) { return stream_destroy(stream); }
CUDA_ALSO(cuStreamDestroy, cuStreamDestroy_v2, uint64_t);
CUDA_API int cuStreamSynchronize(uint64_t stream) {
  pools_synchronize();
  return stream_synchronize(stream);
}
CUDA_API int cuStreamQuery(uint64_t stream) { return stream_query(stream); }
CUDA_API int cuStreamWaitEvent(uint64_t stream, uint64_t event, unsigned) { return stream_wait_event(stream, event); }
CUDA_API int cuStreamGetPriority(uint64_t stream, int* priority) {
  StreamInfo info;
  if (priority == nullptr) return kInvalidValue;
  if (const int problem = stream_info(stream, &info)) return problem;
  *priority = info.priority;
  return kSuccess;
}
CUDA_API int cuStreamGetFlags(uint64_t stream, unsigned* flags) {
  StreamInfo info;
  if (flags == nullptr) return kInvalidValue;
  if (const int problem = stream_info(stream, &info)) return problem;
  *flags = info.flags;
  return kSuccess;
}
CUDA_API int cuStreamGetId(uint64_t stream, unsigned long long* id) {
  StreamInfo info;
  if (id == nullptr) return kInvalidValue;
  if (const int problem = stream_info(stream, &info)) return problem;
  *id = info.id;
  return kSuccess;
}
CUDA_API int cuStreamGetCtx(uint64_t stream, uint64_t* context) {
  StreamInfo info;
  if (context == nullptr) return kInvalidValue;
  if (const int problem = stream_info(stream, &info)) return problem;
  *context = primary_context(info.device);
  return kSuccess;
}
CUDA_API int cuStreamGetCtx_v2(uint64_t stream, uint64_t* context, uint64_t* green_context) {
  if (green_context != nullptr) *green_context = 0;
  return cuStreamGetCtx(stream, context);
}
CUDA_API int cuStreamGetDevice(uint64_t stream, int* device) {
  StreamInfo info;
  if (device == nullptr) return kInvalidValue;
  if (const int problem = stream_info(stream, &info)) return problem;
  *device = info.device;
  return kSuccess;
}
CUDA_API int cuStreamAddCallback(uint64_t stream, void (*callback)(uint64_t, int, void*), void* data, unsigned) {
  StreamInfo info;
  if (callback == nullptr) return kInvalidValue;
  if (const int problem = stream_info(stream, &info)) return problem;
  callback(stream, kSuccess, data);
  return kSuccess;
}

CUDA_API int cuEventCreate(uint64_t* event, unsigned flags) {
  if (event == nullptr) return kInvalidValue;
  *event = event_create(flags);
  return kSuccess;
}
CUDA_API int cuEventDestroy_v2(uint64_t event) { return event_destroy(event); }
CUDA_ALSO(cuEventDestroy, cuEventDestroy_v2, uint64_t);
CUDA_API int cuEventRecord(uint64_t event, uint64_t stream) { return event_record(event, stream); }
CUDA_API int cuEventRecordWithFlags(uint64_t event, uint64_t stream, unsigned) { return event_record(event, stream); }
CUDA_API int cuEventQuery(uint64_t event) { return event_query(event); }
CUDA_API int cuEventSynchronize(uint64_t event) {
  pools_synchronize();
  return event_synchronize(event);
}
CUDA_API int cuEventElapsedTime_v2(float* elapsed_ms, uint64_t from, uint64_t to) { return event_elapsed(from, to, elapsed_ms); }
CUDA_ALSO(cuEventElapsedTime, cuEventElapsedTime_v2, float*, uint64_t, uint64_t);

CUDA_API int cuStreamBeginCapture_v2(uint64_t stream, int mode) { return capture_begin(stream, mode, 0); }
CUDA_API int cuStreamEndCapture(uint64_t stream, uint64_t* graph) { return capture_end(stream, graph); }
CUDA_API int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (mode == nullptr || *mode < 0 || *mode > 2) return kInvalidValue;
  *mode = capture_exchange_mode(*mode);
  return kSuccess;
}
CUDA_API int cuStreamIsCapturing(uint64_t stream, int* status) {
  CaptureInfo info;
  if (status == nullptr) return kInvalidValue;
  if (const int problem = capture_info(stream, &info)) return problem;
  *status = info.status;
  return kSuccess;
}
CUDA_API int cuStreamGetCaptureInfo_v3(uint64_t stream, int* status, uint64_t* id, uint64_t* graph, const uint64_t** nodes,
                                       const void** edges, size_t* count) {
  CaptureInfo info;
  if (status == nullptr) return kInvalidValue;
  if (const int problem = capture_info(stream, &info)) return problem;
  *status = info.status;
  if (info.status != kCaptureActive) return kSuccess;
  if (id != nullptr) *id = info.id;
  if (graph != nullptr) *graph = info.graph;
  if (nodes != nullptr) *nodes = info.dependencies;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = info.dependency_count;
  return kSuccess;
}
CUDA_API int cuStreamGetCaptureInfo_v2(uint64_t stream, int* status, uint64_t* id, uint64_t* graph, const uint64_t** nodes, size_t* count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, nullptr, count);
}
CUDA_API int cuStreamGetCaptureInfo(uint64_t stream, int* status, uint64_t* id) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
CUDA_API int cuStreamUpdateCaptureDependencies(uint64_t stream, uint64_t* nodes, size_t count, unsigned flags) {
  return capture_update_dependencies(stream, nodes, count, flags == 1);
}
CUDA_API int cuStreamUpdateCaptureDependencies_v2(uint64_t stream, uint64_t* nodes, const void*, size_t count, unsigned flags) {
  return capture_update_dependencies(stream, nodes, count, flags == 1);
}

CUDA_API int cuGraphCreate(uint64_t* graph, unsigned) {
  if (graph == nullptr) return kInvalidValue;
  *graph = graph_create();
  return kSuccess;
}
CUDA_API int cuGraphDestroy(uint64_t graph) { return graph_destroy(graph); }
CUDA_API int cuGraphGetNodes(uint64_t graph, uint64_t* nodes, size_t* count) { return graph_nodes(graph, false, nodes, count); }
CUDA_API int cuGraphNodeGetType(uint64_t node, int* type) { return graph_node_type(node, type); }
CUDA_API int cuGraphInstantiateWithFlags(uint64_t* exec, uint64_t graph, unsigned long long) { return graph_instantiate(graph, exec); }
CUDA_API int cuGraphLaunch(uint64_t exec, uint64_t stream) { return graph_launch(exec, stream); }
CUDA_API int cuGraphUpload(uint64_t, uint64_t) { return kSuccess; }
CUDA_API int cuGraphExecDestroy(uint64_t exec) { return graph_exec_destroy(exec); }
