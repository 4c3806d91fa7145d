#include "src/pack/policy.h"

namespace gpucast::pack {

// That of one job alone is 1.
const Policy kGpucastPolicy = {
    "gpucast", "memory requests add up to at most the card's memory, and jobs sit together where the card's progress grows most",
    [](const Figures&) { return 0.0; }, true,
    [](std::span<const Slowdown> slowdowns) {
      double out = 0;
      for (const Slowdown& slowdown : slowdowns) out += 1 / slowdown.expected;
      return out;
    }};

}  // namespace gpucast::pack
