#include "src/job/kernel_mix.h"

#include <algorithm>

#include "src/time/card_rates.h"

namespace gpucast {
pack::KernelMix kernel_mix(const StepOperations& step, const CardOccupancy& occupancy) {
  const CardRates& rates = *occupancy.rates;
  double compute_s = 0, tensor_s = 0, dram_s = 0, l2_s = 0, pcie_s = 0;
  int64_t kernels = occupancy.launches, waves = 0;
  for (const KernelOccupancy& kernel : occupancy.kernels) waves += kernel.launches * std::max<int64_t>(1, kernel.waves);
  for (const StepOperation& operation : step.operations) {
    const Operation& sizes = step.shapes[operation.shape];
    const auto bytes = static_cast<double>(sizes.bytes_read + sizes.bytes_written);
    if (sizes.to_host || sizes.from_host) {
      pcie_s += bytes / 2 / rates.link_bytes_per_s;  // each byte is read on one side and written on the other
      continue;
    }
    if (sizes.kind == OperationKind::recurrent) {  // one call starts kernels for each step
      kernels += std::max<int64_t>(0, sizes.rows - 1);
      waves += std::max<int64_t>(0, sizes.rows - 1);
    }
    if (const double rate = rates.sustained_flop_per_s[sizes.precision]; rate > 0 && makes_products(sizes.kind))
      (rates.tensor_cores[sizes.precision] ? tensor_s : compute_s) += sizes.flops / rate;
    l2_s += bytes / rates.l2_bytes_per_s;
    if (bytes > rates.l2_full * rates.l2_bytes) dram_s += bytes / rates.dram_bytes_per_s;
  }
  const auto of_step = [&](double seconds) { return std::min(1.0, seconds * 1e9 / occupancy.step_ns); };
  pack::KernelMix out;
  out.busy = occupancy.nvml_utilization;
  out.sm_active = occupancy.sm_active;
  out.warps = occupancy.of_step;
  out.compute = of_step(compute_s);
  out.tensor = of_step(tensor_s);
  out.dram = of_step(dram_s);
  out.l2 = of_step(l2_s);
  out.pcie = of_step(pcie_s);
  out.launch = of_step(static_cast<double>(occupancy.launches) * rates.launch_ns * 1e-9);
  out.kernels = kernels;
  out.waves = waves;
  out.step_ns = occupancy.step_ns;
  return out;
}

}  // namespace gpucast
