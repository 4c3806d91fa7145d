#include "src/kernels/counted_work.h"

#include <algorithm>
#include <numeric>

#include "src/base/bounded.h"

namespace gpucast {
namespace {

int64_t whole(double value) { return static_cast<int64_t>(std::clamp(value, 0.0, static_cast<double>(kMostElements))); }

}  // namespace

void set_counted(const KernelCounts& counts, const KernelLaunch& launch, const MachineCode& code, Operation* out) {
  CountedWork& work = out->counted;
  static_cast<LaunchCounts&>(work) = counts;
  work.block_threads = static_cast<int>(std::min<uint64_t>(uint64_t{launch.block[0]} * launch.block[1] * launch.block[2], 1024));
  work.registers = code.registers;
  work.shared_bytes = code.static_shared_bytes + launch.dynamic_shared_bytes;
  work.sectors = counts.load_sectors + counts.store_sectors + counts.atomic_sectors;
  work.async_bytes = counts.async_load_bytes + counts.async_store_bytes;
  work.unique_bytes = counts.unique_load_bytes + counts.unique_store_bytes;
  work.unique_load_bytes = counts.unique_load_bytes;
  work.block_load_bytes = counts.block_load_bytes;
  work.atomic_bytes = counts.atomic_bytes;
  work.rows_of_blocks = static_cast<double>(launch.grid[1]) * launch.grid[2];
  work.block_bytes = counts.block_load_bytes + counts.block_store_bytes;
  work.block_touched_bytes = counts.block_touched_bytes;
  work.touched_bytes = counts.touched_bytes;
  work.block_spilled_bytes = static_cast<double>(code.local_bytes) * work.block_threads;
  work.spills = std::max(1.0, counts.memory_repeats);
  out->bytes_read = whole(counts.unique_load_bytes);
  out->bytes_written = whole(counts.unique_store_bytes);
  out->flops = counts.flops + std::accumulate(counts.tensor_flops.begin(), counts.tensor_flops.end(), 0.0);
  const auto most = std::max_element(counts.tensor_flops.begin(), counts.tensor_flops.end());
  if (*most > 0) {
    out->precision = static_cast<Precision>(most - counts.tensor_flops.begin());
  } else {
    out->precision = counts.fp64 > counts.fp32 + counts.fp16 ? Precision::fp64
                     : counts.fp16 > counts.fp32             ? Precision::fp16
                                                             : Precision::fp32;
  }
}

}  // namespace gpucast
