// Gradient accumulation by the script's own option: a smaller batch, the same global batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpucast::search {

struct Accumulation {
  int64_t global_batch = 0;
  std::string option;  // "--gradient-accumulation-steps"
};

// "256", or "256=--accum". Without an option: one of the usual names, from the command or the script. Throws Error.
Accumulation parse_accumulation(const std::string& text, const std::vector<std::string>& command, const std::string& folder);

std::vector<std::string> with_accumulation(const std::vector<std::string>& command, const Accumulation& accumulation, int64_t batch);

}  // namespace gpucast::search
