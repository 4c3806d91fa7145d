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
      peak_flop_per_s;       // by type: "fp32", "tf32", "fp16", "bf16", "fp8", "int8"; missing: the card has no such unit
  double power_w = 0;        // the power limit
  double board_power_w = 0;  // the limit that the board comes with, of a MIG slice its part; 0: the same as power_w
  int mig_slices = 0;        // the most MIG slices; 0: the card has no MIG
  std::vector<std::string> sources;
  std::vector<std::string> notes;  // why a figure differs from what the others give
  // Figures that are not published, differ between cards of this name, or follow from a related card. They widen the interval of step times
  // by these factors.
  std::vector<std::string> estimated;
  double spread_low = 1, spread_high = 1;
  // The card whose measured constants apply, if not its own: of a card in a file the nearest one, of `rtx4090@300W` the RTX 4090.
  std::string constants_of;
  bool constants_are_own = true;  // false: borrowed from a related card, so the card counts as unmeasured
};

const std::vector<Gpu>& gpu_table();

// Cards of one capability run the same kernels.
inline std::pair<int, int> compute_capability(const Gpu& gpu) { return {gpu.compute_major, gpu.compute_minor}; }

// The card whose measurements are also this card's: for `rtx4090@300W` the RTX 4090.
inline const std::string& measured_id(const Gpu& gpu) {
  return gpu.constants_of.empty() || !gpu.constants_are_own ? gpu.id : gpu.constants_of;
}

// Today's PyTorch has kernels for the card. Older cards are in the table because users can ask for their step times.
inline bool runs_pytorch(const Gpu& gpu) { return gpu.compute_major >= 7; }

// The card if the user names none.
inline constexpr const char* kDefaultGpu = "a100-80";

// Ignores case, '-', '_' and blanks, and a leading "nvidia" or "geforce". Also a file with a card ("my_card.json"), a card with a lower
// power limit ("rtx4090@300W") and a MIG slice ("a100-80@3g.40gb"). Throws Error with a "did you mean" for an unknown name.
const Gpu& find_gpu(const std::string& name);

// The closest of `candidates` to a misspelt `word` (edit distance of at most a third of its length), or nothing.
std::optional<std::string> did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

// Insertions, deletions, substitutions and swaps of two neighbours each count one (optimal string alignment).
size_t edit_distance(const std::string& a, const std::string& b);

}  // namespace gpucast
