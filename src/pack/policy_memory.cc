#include "src/pack/policy.h"

namespace gpucast::pack {

const Policy kMemoryPolicy = {"memory", "memory requests add up to at most the card's memory", [](const Figures&) { return 0.0; }, true,
                              nullptr};

}  // namespace gpucast::pack
