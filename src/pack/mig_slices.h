// The MIG slices on one card.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/pack/cluster.h"

namespace gpucast::pack {

struct MigSlices {
  struct Slice {
    uint32_t job = 0, units = 0;
  };
  uint32_t taken_units = 0;  // of memory, one bit each
  std::vector<Slice> slices;
};

// The units of memory of a slice that begins there, one bit each.
uint32_t slice_units(const MigProfile& profile, int start);

// The number, from 1, of the largest profile that still fits; 0: none. `profiles` are in the order of mig_profiles().
int64_t largest_free_profile(std::span<const MigProfile> profiles, uint32_t taken_units);

// Places a slice for the job so that the largest possible profile still fits. The job's profile must fit.
void take_slice(std::span<const MigProfile> profiles, int profile, uint32_t job, MigSlices* card);
void release_slice(uint32_t job, MigSlices* card);

}  // namespace gpucast::pack
