#include "src/pack/job.h"

namespace gpucast::pack {

KernelMix kernel_mix_of(const Figures& figures) {
  if (figures.mix) return *figures.mix;
  KernelMix out;
  out.busy = figures.nvml_utilization;
  out.sm_active = figures.sm_active;
  out.warps = figures.occupancy * figures.nvml_utilization;
  out.step_ns = figures.step_ns;
  return out;
}

}  // namespace gpucast::pack
