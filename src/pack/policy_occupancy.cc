// DNN-occu, section VI.B.
#include "src/pack/policy.h"

namespace gpucast::pack {

const Policy kOccupancyPolicy = {"occupancy", "achieved occupancies add up to at most 100 %",
                                 [](const Figures& figures) { return figures.occupancy; }, false, nullptr};

}  // namespace gpucast::pack
