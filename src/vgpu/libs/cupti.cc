// Virtual CUPTI. In a run with a clock the activity interface reports the work and calls of the clock (cupti_recorder.h). Otherwise
// everything can be switched on, and no record comes. (If CUPTI failed, Kineto would give up with "string pointer is null".) The counter
// interfaces (profiler, PC sampling, metrics) keep their "not supported".
#include <ctime>

#include "src/vgpu/core/activities.h"
#include "src/vgpu/core/functions.h"
#include "src/vgpu/libs/call.h"
#include "src/vgpu/libs/cupti_recorder.h"

using namespace gpucast::vgpu;
using namespace gpucast::vgpu::cupti;

namespace {

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Recorder& recorder();
void on_call(uint32_t correlation) { recorder().on_call(correlation); }
Recorder& recorder() {
  static auto& one = *new Recorder({record_activities, take_activities, now_ns, kernel_resources},
                                   on_call);  // never destroyed: calls come until the very end
  return one;
}

// Writes an answer if the caller provides a place for it.
template <typename T>
int write_answer(T* out, T value) {
  if (!out) return kInvalidParameter;
  *out = value;
  return kSuccess;
}

}  // namespace

#define SUCCEEDS(Name) \
  GPUCAST_EXPORT int Name() { return kSuccess; }
SUCCEEDS(cuptiActivityEnableAllSyncRecords)
SUCCEEDS(cuptiActivityEnableAllocationSource)
SUCCEEDS(cuptiActivityEnableBufferSummary)
SUCCEEDS(cuptiActivityEnableCudaEventDeviceTimestamps)
SUCCEEDS(cuptiActivityEnableDeviceGraph)
SUCCEEDS(cuptiActivityEnableHWTrace)
SUCCEEDS(cuptiActivityEnableLatencyTimestamps)
SUCCEEDS(cuptiActivityEnableLaunchAttributes)
SUCCEEDS(cuptiActivityEnableRawTimestamps)
SUCCEEDS(cuptiActivityFlushPeriod)
SUCCEEDS(cuptiActivitySetAttribute)
SUCCEEDS(cuptiActivityConfigureUnifiedMemoryCounter)
SUCCEEDS(cuptiUnsubscribe)
SUCCEEDS(cuptiEnableCallback)
SUCCEEDS(cuptiEnableDomain)
SUCCEEDS(cuptiEnableAllDomains)
SUCCEEDS(cuptiFinalize)
SUCCEEDS(cuptiGetLastError)
SUCCEEDS(cuptiSetThreadIdType)
SUCCEEDS(cuptiSetEventCollectionMode)

GPUCAST_EXPORT int cuptiActivityEnable(uint32_t kind) { return recorder().enable(kind, true); }
GPUCAST_EXPORT int cuptiActivityDisable(uint32_t kind) { return recorder().enable(kind, false); }
GPUCAST_EXPORT int cuptiActivityEnableContext(void*, uint32_t kind) { return recorder().enable(kind, true); }
GPUCAST_EXPORT int cuptiActivityDisableContext(void*, uint32_t kind) { return recorder().enable(kind, false); }
GPUCAST_EXPORT int cuptiActivityEnableAndDump(uint32_t kind) { return recorder().enable(kind, true); }
GPUCAST_EXPORT int cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t on) {
  recorder().enable_function(false, id, on != 0);
  return kSuccess;
}
GPUCAST_EXPORT int cuptiActivityEnableDriverApi(uint32_t id, uint8_t on) {
  recorder().enable_function(true, id, on != 0);
  return kSuccess;
}
GPUCAST_EXPORT int cuptiActivityRegisterCallbacks(Recorder::RequestBuffer request, Recorder::CompleteBuffer complete) {
  return recorder().register_callbacks(request, complete);
}
GPUCAST_EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)()) {
  if (!clock) return kInvalidParameter;
  recorder().register_clock(clock);
  return kSuccess;
}
GPUCAST_EXPORT int cuptiActivityFlushAll(uint32_t flags) {
  recorder().flush((flags & kFlushForced) != 0);
  return kSuccess;
}
GPUCAST_EXPORT int cuptiActivityFlush(void*, uint32_t, uint32_t flags) { return cuptiActivityFlushAll(flags); }
GPUCAST_EXPORT int cuptiActivityGetNextRecord(void* buffer, size_t valid_bytes, Record** record) {
  return next_record(static_cast<uint8_t*>(buffer), valid_bytes, record);
}
GPUCAST_EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  return write_answer(dropped, recorder().take_dropped());
}
GPUCAST_EXPORT int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) { return recorder().push_external(kind, id); }
GPUCAST_EXPORT int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t* id) { return recorder().pop_external(kind, id); }
GPUCAST_EXPORT int cuptiActivityGetAttribute(int, size_t* size_bytes, void* value) {
  if (!size_bytes || !value) return kInvalidParameter;
  std::memset(value, 0, *size_bytes);
  return kSuccess;
}
GPUCAST_EXPORT int cuptiSubscribe(void** subscriber, void*, void*) {
  static char one;
  return write_answer(subscriber, static_cast<void*>(&one));
}
GPUCAST_EXPORT int cuptiSubscribe_v2(void** subscriber, void*, void*, void*) { return cuptiSubscribe(subscriber, nullptr, nullptr); }
GPUCAST_EXPORT int cuptiGetVersion(uint32_t* version) {
  return write_answer(version, static_cast<uint32_t>(gpucast::vgpu::profile().cupti_version));
}
GPUCAST_EXPORT int cuptiGetTimestamp(uint64_t* time) { return write_answer(time, recorder().now()); }
GPUCAST_EXPORT int cuptiGetDeviceId(void*, uint32_t* id) { return write_answer(id, 0u); }
GPUCAST_EXPORT int cuptiGetContextId(void*, uint32_t* id) { return write_answer(id, 1u); }
GPUCAST_EXPORT int cuptiGetStreamId(void*, void*, uint32_t* id) { return write_answer(id, 7u); }
GPUCAST_EXPORT int cuptiGetStreamIdEx(void*, void*, uint8_t, uint32_t* id) { return write_answer(id, 7u); }
GPUCAST_EXPORT int cuptiGetGraphId(void*, uint32_t* id) { return write_answer(id, 0u); }
GPUCAST_EXPORT int cuptiGetGraphNodeId(void*, uint64_t* id) { return write_answer(id, uint64_t{0}); }
GPUCAST_EXPORT int cuptiGetThreadIdType(int* type) { return write_answer(type, 0); }
GPUCAST_EXPORT int cuptiGetCallbackState(uint32_t* enabled, void*, int, uint32_t) { return write_answer(enabled, 0u); }
GPUCAST_EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char** name) {
  if (domain != kRuntimeDomain && domain != kDriverDomain) return kInvalidParameter;
  const char* found = function_name(domain == kDriverDomain, id);
  return write_answer(name, found ? found : "");
}
GPUCAST_EXPORT int cuptiComputeCapabilitySupported(int, int, int* supported) { return write_answer(supported, 1); }
GPUCAST_EXPORT int cuptiDeviceSupported(int, int* supported) { return write_answer(supported, 1); }
GPUCAST_EXPORT int cuptiSupportedDomains(size_t* count, const int** table) {
  static const int none[1] = {0};
  if (table) *table = none;
  return write_answer(count, size_t{0});
}
GPUCAST_EXPORT int cuptiGetResultString(int result, const char** text) {
  return write_answer(text, result == 0    ? "CUPTI_SUCCESS"
                            : result == 1  ? "CUPTI_ERROR_INVALID_PARAMETER"
                            : result == 12 ? "CUPTI_ERROR_MAX_LIMIT_REACHED"
                            : result == 27 ? "CUPTI_ERROR_NOT_SUPPORTED"
                                           : "CUPTI_ERROR_UNKNOWN");
}
GPUCAST_EXPORT int cuptiGetErrorMessage(int result, const char** text) { return cuptiGetResultString(result, text); }
