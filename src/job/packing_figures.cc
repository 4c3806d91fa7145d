#include "src/job/packing_figures.h"

#include "src/job/kernel_mix.h"

namespace gpucast {

pack::Figures packing_figures(const Analysis& analysis, const CardOccupancy& occupancy) {
  pack::Figures out;
  out.step_ns = occupancy.step_ns;
  out.request_bytes = analysis.prediction.device.request_bytes;
  out.occupancy = occupancy.occupancy.time_weighted;
  out.sm_active = occupancy.sm_active;
  out.nvml_utilization = occupancy.nvml_utilization;
  out.mix = kernel_mix(observed_step(*analysis.facts), occupancy);
  return out;
}

}  // namespace gpucast
