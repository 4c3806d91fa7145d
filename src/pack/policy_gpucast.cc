#include "src/pack/policy.h"

namespace gpucast::pack {

const Policy kGpucastPolicy = {
    "gpucast", "memory requests add up to at most the card's memory, and jobs sit together where the card's progress grows most",
    [](const Figures&) { return 0.0; }, true,
    [](const Slowdown& before, const Slowdown& after) { return 1 / before.expected - 1 / after.expected; }};

}  // namespace gpucast::pack
