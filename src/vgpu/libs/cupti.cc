// Virtual CUPTI: everything can be switched on and no record ever comes. (Kineto gives up with "string pointer is null"
// when CUPTI fails.) The counter interfaces (profiler, PC sampling, metrics) keep their "not supported".
#include <ctime>

#include "src/vgpu/libs/call.h"

namespace {

enum Result : int { kSuccess = 0, kInvalidParameter = 1, kMaxLimitReached = 12 };

// Writes an answer where the caller wants one.
template <typename T>
int answer(T* out, T value) {
  if (!out) return kInvalidParameter;
  *out = value;
  return kSuccess;
}

}  // namespace

#define SUCCEEDS(Name) \
  GPUCAST_EXPORT int Name() { return kSuccess; }
SUCCEEDS(cuptiActivityEnable)
SUCCEEDS(cuptiActivityDisable)
SUCCEEDS(cuptiActivityEnableContext)
SUCCEEDS(cuptiActivityDisableContext)
SUCCEEDS(cuptiActivityEnableAndDump)
SUCCEEDS(cuptiActivityEnableAllSyncRecords)
SUCCEEDS(cuptiActivityEnableAllocationSource)
SUCCEEDS(cuptiActivityEnableBufferSummary)
SUCCEEDS(cuptiActivityEnableCudaEventDeviceTimestamps)
SUCCEEDS(cuptiActivityEnableDeviceGraph)
SUCCEEDS(cuptiActivityEnableDriverApi)
SUCCEEDS(cuptiActivityEnableRuntimeApi)
SUCCEEDS(cuptiActivityEnableHWTrace)
SUCCEEDS(cuptiActivityEnableLatencyTimestamps)
SUCCEEDS(cuptiActivityEnableLaunchAttributes)
SUCCEEDS(cuptiActivityEnableRawTimestamps)
SUCCEEDS(cuptiActivityFlush)
SUCCEEDS(cuptiActivityFlushAll)
SUCCEEDS(cuptiActivityFlushPeriod)
SUCCEEDS(cuptiActivityPushExternalCorrelationId)
SUCCEEDS(cuptiActivityRegisterCallbacks)
SUCCEEDS(cuptiActivityRegisterTimestampCallback)
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

GPUCAST_EXPORT int cuptiActivityGetNextRecord(void*, size_t, void** record) {
  if (record) *record = nullptr;
  return kMaxLimitReached;  // the buffer holds no further record
}
GPUCAST_EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) { return answer(dropped, size_t{0}); }
GPUCAST_EXPORT int cuptiActivityPopExternalCorrelationId(int, uint64_t* id) {
  if (id) *id = 0;
  return kSuccess;
}
GPUCAST_EXPORT int cuptiActivityGetAttribute(int, size_t* size_bytes, void* value) {
  if (!size_bytes || !value) return kInvalidParameter;
  std::memset(value, 0, *size_bytes);
  return kSuccess;
}
GPUCAST_EXPORT int cuptiSubscribe(void** subscriber, void*, void*) {
  static char one;
  return answer(subscriber, static_cast<void*>(&one));
}
GPUCAST_EXPORT int cuptiSubscribe_v2(void** subscriber, void*, void*, void*) { return cuptiSubscribe(subscriber, nullptr, nullptr); }
GPUCAST_EXPORT int cuptiGetVersion(uint32_t* version) {
  return answer(version, static_cast<uint32_t>(gpucast::vgpu::profile().cupti_version));
}
GPUCAST_EXPORT int cuptiGetTimestamp(uint64_t* nanoseconds) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return answer(nanoseconds, static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec));
}
GPUCAST_EXPORT int cuptiGetDeviceId(void*, uint32_t* id) { return answer(id, 0u); }
GPUCAST_EXPORT int cuptiGetContextId(void*, uint32_t* id) { return answer(id, 1u); }
GPUCAST_EXPORT int cuptiGetStreamId(void*, void*, uint32_t* id) { return answer(id, 7u); }
GPUCAST_EXPORT int cuptiGetStreamIdEx(void*, void*, uint8_t, uint32_t* id) { return answer(id, 7u); }
GPUCAST_EXPORT int cuptiGetGraphId(void*, uint32_t* id) { return answer(id, 0u); }
GPUCAST_EXPORT int cuptiGetGraphNodeId(void*, uint64_t* id) { return answer(id, uint64_t{0}); }
GPUCAST_EXPORT int cuptiGetThreadIdType(int* type) { return answer(type, 0); }
GPUCAST_EXPORT int cuptiGetCallbackState(uint32_t* enabled, void*, int, uint32_t) { return answer(enabled, 0u); }
GPUCAST_EXPORT int cuptiGetCallbackName(int, uint32_t, const char** name) { return answer(name, ""); }
GPUCAST_EXPORT int cuptiComputeCapabilitySupported(int, int, int* supported) { return answer(supported, 1); }
GPUCAST_EXPORT int cuptiDeviceSupported(int, int* supported) { return answer(supported, 1); }
GPUCAST_EXPORT int cuptiSupportedDomains(size_t* count, const int** table) {
  static const int none[1] = {0};
  if (table) *table = none;
  return answer(count, size_t{0});
}
GPUCAST_EXPORT int cuptiGetResultString(int result, const char** text) {
  return answer(text, result == 0    ? "CUPTI_SUCCESS"
                      : result == 1  ? "CUPTI_ERROR_INVALID_PARAMETER"
                      : result == 12 ? "CUPTI_ERROR_MAX_LIMIT_REACHED"
                      : result == 27 ? "CUPTI_ERROR_NOT_SUPPORTED"
                                     : "CUPTI_ERROR_UNKNOWN");
}
GPUCAST_EXPORT int cuptiGetErrorMessage(int result, const char** text) { return cuptiGetResultString(result, text); }
