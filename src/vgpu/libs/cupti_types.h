// Records of CUPTI's activity interface. Releases only add fields at the end of a record. So the longest form also serves readers compiled
// for older releases (types_check.cc compares them with NVIDIA's headers).
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpucast::vgpu::cupti {

enum Result : int {
  kSuccess = 0,
  kInvalidParameter = 1,
  kMaxLimitReached = 12,
  kQueueEmpty = 18,
  kInvalidKind = 21,
};

// Kinds with records (CUpti_ActivityKind). Others can be switched on and give no records.
enum Kind : int {
  kMemcpy = 1,
  kMemset = 2,
  kKernel = 3,
  kDriver = 4,
  kRuntime = 5,
  kConcurrentKernel = 10,
  kCudaEvent = 36,
  kSynchronization = 38,
  kExternalCorrelation = 39,
};
constexpr uint32_t kKinds = 64;  // more than CUPTI has

enum Domain : int { kDriverDomain = 1, kRuntimeDomain = 2 };
enum SynchronizationType : int { kEventSynchronize = 1, kStreamWaitEvent = 2, kStreamSynchronize = 3, kContextSynchronize = 4 };
enum CopyKind : uint8_t { kCopyUnknown = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 8, kHostToHost = 9, kPeerToPeer = 10 };
enum MemoryKind : uint8_t { kMemoryUnknown = 0, kPageable = 1, kPinned = 2, kDeviceMemory = 3 };
enum ChannelType : int { kComputeChannel = 1, kCopyChannel = 2 };
constexpr uint32_t kNotOfOne = 0xFFFFFFFFu;  // the stream or event of a record that has none
constexpr int kExternalKinds = 6;            // CUpti_ExternalCorrelationKind: 1 to 5
constexpr int kFlushForced = 1;

struct Record {  // what all records begin with
  uint32_t kind;
};

struct ActivityKernel {
  uint32_t kind;
  uint8_t cacheConfig, sharedMemoryConfig;
  uint16_t registersPerThread;
  uint32_t partitionedGlobalCacheRequested, partitionedGlobalCacheExecuted;
  uint64_t start, end, completed;
  uint32_t deviceId, contextId, streamId;
  int32_t gridX, gridY, gridZ, blockX, blockY, blockZ;
  int32_t staticSharedMemory, dynamicSharedMemory;
  uint32_t localMemoryPerThread, localMemoryTotal;
  uint32_t correlationId;
  int64_t gridId;
  const char* name;
  void* reserved0;
  uint64_t queued, submitted;
  uint8_t launchType, isSharedMemoryCarveoutRequested, sharedMemoryCarveoutRequested, padding;
  uint32_t sharedMemoryExecuted;
  uint64_t graphNodeId;
  uint32_t shmemLimitConfig, graphId;
  void* pAccessPolicyWindow;
  uint32_t channelID, channelType;
  uint32_t clusterX, clusterY, clusterZ, clusterSchedulingPolicy;
  uint64_t localMemoryTotal_v2;
  uint32_t maxPotentialClusterSize, maxActiveClusters;
  uint8_t isDeviceLaunched, padding3[7];
  int32_t priority;
  uint32_t padding4, executionModel, padding5, sourceGraphId, padding6;
  uint64_t sourceGraphNodeId;
};

struct ActivityMemcpy {
  uint32_t kind;
  uint8_t copyKind, srcKind, dstKind, flags;
  uint64_t bytes, start, end;
  uint32_t deviceId, contextId, streamId, correlationId, runtimeCorrelationId, pad;
  void* reserved0;
  uint64_t graphNodeId;
  uint32_t graphId, channelID, channelType;
  uint8_t isDeviceLaunched, pad2[3];
  uint64_t copyCount;
  uint32_t sourceGraphId, pad3;
  uint64_t sourceGraphNodeId;
};

struct ActivityMemset {
  uint32_t kind, value;
  uint64_t bytes, start, end;
  uint32_t deviceId, contextId, streamId, correlationId;
  uint16_t flags, memoryKind;
  uint32_t pad;
  void* reserved0;
  uint64_t graphNodeId;
  uint32_t graphId, channelID, channelType;
  uint8_t isDeviceLaunched, pad2[3];
  uint32_t sourceGraphId, pad3;
  uint64_t sourceGraphNodeId;
};

struct ActivityApi {  // a call: kRuntime, kDriver
  uint32_t kind, cbid;
  uint64_t start, end;
  uint32_t processId, threadId, correlationId, returnValue;
};

struct ActivityExternalCorrelation {
  uint32_t kind, externalKind;
  uint64_t externalId;
  uint32_t correlationId, reserved;
};

struct ActivitySynchronization {
  uint32_t kind, type;
  uint64_t start, end;
  uint32_t correlationId, contextId, streamId, cudaEventId;
  uint64_t cudaEventSyncId;
  uint32_t returnValue, pad;
};

struct ActivityCudaEvent {
  uint32_t kind, correlationId, contextId, streamId, eventId, pad, deviceId, pad2;
  void* reserved0;
  uint64_t deviceTimestamp, cudaEventSyncId, graphNodeId;
  uint32_t graphId, sourceGraphId;
  uint64_t sourceGraphNodeId;
};

}  // namespace gpucast::vgpu::cupti
