// The device table: each card's figures, with their sources. Data: data/gpus.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpucast {

// One card. Units in the names; rates are peaks without sparsity.
struct Gpu {
  std::string id;            // the argument of --gpu: "rtx3060"
  std::string name;          // as CUDA reports it: "NVIDIA GeForce RTX 3060"
  std::string architecture;  // "Ampere"
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  uint64_t total_memory_bytes = 0;  // as cudaDeviceProp.totalGlobalMem
  bool total_memory_measured = false;
  uint64_t l2_bytes = 0;
  int memory_bus_width_bits = 0, memory_clock_khz = 0, clock_khz = 0;
  double bandwidth_bytes_per_s = 0;
  int shared_memory_per_block_bytes = 0, shared_memory_per_block_optin_bytes = 0, shared_memory_per_multiprocessor_bytes = 0;
  int registers_per_multiprocessor = 0, max_threads_per_multiprocessor = 0, max_blocks_per_multiprocessor = 0;
  std::map<std::string, double>
      peak_flop_per_s;  // by type: "fp32", "tf32", "fp16", "bf16", "fp8", "int8"; missing: the card has no such unit
  double power_w = 0;   // the power limit of the board
  std::vector<std::string> sources;
};

const std::vector<Gpu>& gpu_table();

// Cards of one capability run the same kernels.
inline std::pair<int, int> compute_capability(const Gpu& gpu) { return {gpu.compute_major, gpu.compute_minor}; }

// Today's PyTorch has kernels for the card. Older cards are in the table because users can ask for their step times.
inline bool runs_pytorch(const Gpu& gpu) { return gpu.compute_major >= 7; }

// The card if the user names none.
inline constexpr const char* kDefaultGpu = "a100-80";

// Ignores case, '-', '_' and blanks, and a leading "nvidia" or "geforce". Throws Error with a "did you mean" for an unknown name.
const Gpu& find_gpu(const std::string& name);

// The closest of `candidates` to a misspelt `word` (edit distance of at most a third of its length), or nothing.
std::optional<std::string> did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace gpucast
