#include "src/base/gpu_json.h"

#include <cstdint>

namespace gpucast {

void add_gpu_figures(const Gpu& gpu, Json* row) {
  (*row)["multiprocessors"] = gpu.multiprocessors;
  (*row)["total_memory_bytes"] = gpu.total_memory_bytes;
  (*row)["total_memory_measured"] = gpu.total_memory_measured;
  (*row)["l2_bytes"] = gpu.l2_bytes;
  (*row)["memory_bus_width_bits"] = gpu.memory_bus_width_bits;
  (*row)["memory_clock_khz"] = gpu.memory_clock_khz;
  (*row)["clock_khz"] = gpu.clock_khz;
  (*row)["bandwidth_bytes_per_s"] = static_cast<int64_t>(gpu.bandwidth_bytes_per_s);
  (*row)["shared_memory_per_block_bytes"] = gpu.shared_memory_per_block_bytes;
  (*row)["shared_memory_per_block_optin_bytes"] = gpu.shared_memory_per_block_optin_bytes;
  (*row)["shared_memory_per_multiprocessor_bytes"] = gpu.shared_memory_per_multiprocessor_bytes;
  (*row)["registers_per_multiprocessor"] = gpu.registers_per_multiprocessor;
  (*row)["max_threads_per_multiprocessor"] = gpu.max_threads_per_multiprocessor;
  (*row)["max_blocks_per_multiprocessor"] = gpu.max_blocks_per_multiprocessor;
  for (const auto& [type, flop_per_s] : gpu.peak_flop_per_s) (*row)["peak_flop_per_s"][type] = static_cast<int64_t>(flop_per_s);
}

}  // namespace gpucast
