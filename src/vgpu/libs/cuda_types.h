// The structs of the CUDA runtime, driver and NVML that our functions fill in or read, as laid out in the release that
// GPUCAST_CUDA (12 or 13) names. types_check.cc compares them with NVIDIA's headers where those are installed.
#pragma once

#include <cstddef>
#include <cstdint>

#if GPUCAST_CUDA != 12 && GPUCAST_CUDA != 13
#error "GPUCAST_CUDA must be 12 or 13"
#endif

namespace gpucast::vgpu::cuda {

struct Dim3 {
  unsigned x, y, z;
};

struct DeviceProp {
  char name[256];
  unsigned char uuid[16];
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
#if GPUCAST_CUDA == 12
  int clockRate;
#endif
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
#if GPUCAST_CUDA == 12
  int deviceOverlap;
#endif
  int multiProcessorCount;
#if GPUCAST_CUDA == 12
  int kernelExecTimeoutEnabled;
#endif
  int integrated, canMapHostMemory;
#if GPUCAST_CUDA == 12
  int computeMode;
#endif
  int maxTexture1D, maxTexture1DMipmap;
#if GPUCAST_CUDA == 12
  int maxTexture1DLinear;
#endif
  int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3];
  int maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
  int maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap,
      maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount, unifiedAddressing;
#if GPUCAST_CUDA == 12
  int memoryClockRate;
#endif
  int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
#if GPUCAST_CUDA == 12
  int singleToDoublePrecisionPerfRatio;
#endif
  int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch;
#if GPUCAST_CUDA == 12
  int cooperativeMultiDeviceLaunch;
#endif
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported, timelineSemaphoreInteropSupported;
  int memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
#if GPUCAST_CUDA == 12
  int reserved2[2], reserved1[1], reserved[60];
#else
  int deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
  unsigned gpuPciDeviceID, gpuPciSubsystemID;
  int hostNumaMultinodeIpcSupported, reserved[56];
#endif
};

struct FuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
  int clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed, reserved[16];
};

struct PointerAttributes {
  int type;  // 0 unregistered, 1 host, 2 device, 3 managed
  int device;
  void *devicePointer, *hostPointer;
#if GPUCAST_CUDA == 13
  long reserved[8];
#endif
};

struct LaunchConfig {
  Dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  uint64_t stream;
  void* attrs;
  unsigned numAttrs;
};

struct KernelNodeParams {
  void* func;
  Dim3 gridDim, blockDim;
  unsigned sharedMemBytes;
  void **kernelParams, **extra;
};

struct HostNodeParams {
  void (*fn)(void*);
  void* userData;
};

struct MemsetParams {
  void* dst;
  size_t pitch;
  unsigned value, elementSize;
  size_t width, height;
};

struct Pos {
  size_t x, y, z;
};
struct Extent {
  size_t width, height, depth;
};
struct PitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct Memcpy3DParms {
  void* srcArray;
  Pos srcPos;
  PitchedPtr srcPtr;
  void* dstArray;
  Pos dstPos;
  PitchedPtr dstPtr;
  Extent extent;
  int kind;
};

struct GraphNodeParams {
  int type, reserved0[3];
  union {
    long long reserved1[29];
    KernelNodeParams kernel;
  };
  long long reserved2;
};

struct GraphInstantiateParams {
  unsigned long long flags;
  uint64_t uploadStream, errNode_out;
  int result_out;
};

struct GraphExecUpdateResultInfo {
  int result;
  uint64_t errorNode, errorFromNode;
};

struct MemLocation {
  int type, id;
};

struct MemAccessDesc {
  MemLocation location;
  int flags;
};

struct IpcHandle {
  char reserved[64];
};

// ---- Driver -------------------------------------------------------------------------------------------------------------
struct DriverLaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  uint64_t hStream;
  void* attrs;
  unsigned numAttrs;
};

// The start of cudaMemPoolProps and CUmemPoolProps.
struct MemPoolProps {
  int allocation_type, handle_types;
  MemLocation location;
};

struct MemAllocationProp {
  int type, requestedHandleTypes;
  MemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

struct DevProp {  // CUdevprop
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock, totalConstantMemory, SIMDWidth, memPitch, regsPerBlock,
      clockRate;
  int textureAlign;
};

}  // namespace gpucast::vgpu::cuda
