// How much a job's step uses each part of a card when it runs alone. From these figures the slowdowns of neighbours are computed.
#pragma once

#include <cstdint>

namespace gpucast::pack {

// Shares are between 0 and 1 of the card's capacity. They are averages over the whole step, with the gaps between kernels: a kernel that
// uses half of the bandwidth for a tenth of the step adds 0.05 to `dram`.
struct KernelMix {
  double busy = 0;           // the part of the step in which a kernel runs: nvidia-smi's utilization
  double sm_active = 0;      // multiprocessors that have a block
  double warps = 0;          // achieved occupancy times `busy`
  double compute = 0;        // FLOPs of the CUDA cores
  double tensor = 0;         // tensor cores' FLOPs
  double dram = 0;           // device memory's bandwidth
  double l2 = 0;             // L2's bandwidth
  double pcie = 0;           // the bus to the host
  double launch = 0;         // the part of the step in which the host only launches
  int64_t kernels = 0;       // of a step
  int64_t waves = 0;         // waves of blocks, over all kernels of a step; 0: not known
  double step_ns = 0;        // alone
  double compute_limit = 1;  // share of the multiprocessors that it may use: an MPS limit, a MIG slice
  double memory_limit = 1;   // share of bandwidth and L2 that it may use: a MIG slice
};

}  // namespace gpucast::pack
