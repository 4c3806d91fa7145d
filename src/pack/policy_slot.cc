#include "src/pack/policy.h"

namespace gpucast::pack {

const Policy kSlotPolicy = {"slot", "one job a card", [](const Figures&) { return 1.0; }, false, nullptr};

}  // namespace gpucast::pack
