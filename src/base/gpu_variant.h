// Cards that are not in the table: a user's file, a card with a lower power limit, a MIG slice.
#pragma once

#include <string>
#include <vector>

#include "gpucast/gpu.h"

namespace gpucast {

// "my_card.json", "cards/my_card": a name with '/' or the ending ".json" is a file's.
bool is_gpu_file(const std::string& name);

// A card from a file: docs/reference/gpus.md#a-card-in-a-file. Throws Error with the field's line and column.
Gpu read_gpu_file(const std::string& path);

// The card with another power limit. Its clock and rates follow measured runs under power limits (data/power_limit.json).
Gpu with_power_limit(const Gpu& gpu, double watts, const std::string& typed);

// The share of a card that a MIG slice has. Sizes and the units at which slices may begin come from NVIDIA's MIG User Guide.
struct MigSize {
  int compute = 0, memory = 0;  // of mig_slices and mig_memory_units
  std::vector<int> starts;      // the memory units at which it may begin
  std::string name;             // "3g.40gb"
};

int mig_memory_units(const Gpu& gpu);            // parts into which the memory is cut; 0: no MIG
std::vector<MigSize> mig_sizes(const Gpu& gpu);  // from the smallest to the whole card

// A slice of the card as a card of its own. `slice`: "3g.40gb". Throws Error if the card has no such slice.
Gpu mig_slice(const Gpu& gpu, const std::string& slice, const std::string& typed);

// Counts `field` as estimated, and widens the interval of step times by its factor (data/gpus.json, spread).
void mark_estimated(const std::string& field, Gpu* gpu);

}  // namespace gpucast
