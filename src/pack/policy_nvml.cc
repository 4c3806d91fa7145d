#include "src/pack/policy.h"

namespace gpucast::pack {

const Policy kNvmlPolicy = {"nvml", "NVML utilizations add up to at most 100 %",
                            [](const Figures& figures) { return figures.nvml_utilization; }, false, nullptr};

}  // namespace gpucast::pack
