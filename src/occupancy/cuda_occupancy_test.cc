// Compares our rules with NVIDIA's own calculator, if the toolkit's header is installed. cuda_occupancy.h needs only a C compiler.
#include <gtest/gtest.h>

#include "src/occupancy/occupancy.h"

#if __has_include(<cuda_occupancy.h>)
#include <cuda_occupancy.h>
#define GPUCAST_HAS_CUDA_OCCUPANCY 1
#endif

using namespace gpucast;

TEST(CudaOccupancy, NvidiasCalculatorSaysTheSame) {
#ifdef GPUCAST_HAS_CUDA_OCCUPANCY
  int64_t cases = 0;
  for (const CapabilityRules& rules : capability_rules()) {
    const OccupancyCard card = card_of_capability(rules, 1);
    cudaOccDeviceProp properties;
    properties.computeMajor = rules.major;
    properties.computeMinor = rules.minor;
    properties.maxThreadsPerBlock = kMostBlockThreads;
    properties.maxThreadsPerMultiprocessor = card.most_threads;
    properties.regsPerBlock = properties.regsPerMultiprocessor = card.registers;
    properties.warpSize = kWarpThreads;
    properties.sharedMemPerBlock = 48 << 10;
    properties.sharedMemPerBlockOptin = static_cast<size_t>(card.block_shared_bytes);
    properties.sharedMemPerMultiprocessor = static_cast<size_t>(card.shared_bytes);
    properties.reservedSharedMemPerBlock = static_cast<size_t>(rules.reserved_shared_bytes);
    properties.numSms = 1;
    cudaOccFuncAttributes function;
    function.maxThreadsPerBlock = INT_MAX;
    function.partitionedGCConfig = PARTITIONED_GC_OFF;
    function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    const cudaOccDeviceState state;
    for (int registers = 0; registers <= 257; ++registers) {
      for (int threads = 1; threads <= 1056; threads += threads < 65 ? 1 : 31) {
        for (int shared = 0; shared <= 230 << 10; shared += shared < 4096 ? 500 : 7001) {
          function.numRegs = registers;
          function.sharedSizeBytes = static_cast<size_t>(shared / 3);
          const auto dynamic = static_cast<size_t>(shared - shared / 3);
          function.maxDynamicSharedSizeBytes = dynamic;
          cudaOccResult theirs;
          if (cudaOccMaxActiveBlocksPerMultiprocessor(&theirs, &properties, &function, &state, threads, dynamic) != CUDA_OCC_SUCCESS)
            continue;  // such as 6.x with more than 48 KiB
          ++cases;
          const BlocksPerMultiprocessor ours =
              blocks_per_multiprocessor(card, {registers, shared / 3, 0}, threads, static_cast<int64_t>(dynamic));
          ASSERT_EQ(ours.blocks, theirs.activeBlocksPerMultiprocessor)
              << rules.major << "." << rules.minor << ": " << registers << " registers, " << shared << " bytes, " << threads << " threads";
        }
      }
    }
  }
  EXPECT_GT(cases, 1'000'000);
#else
  GTEST_SKIP() << "the CUDA toolkit is not here";
#endif
}
