// Which part of a card jobs compete for.
#pragma once

#include <cstdint>
#include <span>

#include "gpucast/gpu.h"
#include "src/pack/constants.h"
#include "src/pack/kernel_mix.h"
#include "src/pack/sharing_mode.h"

namespace gpucast::pack {

enum class Contended : uint8_t { nothing, multiprocessors, bandwidth, host, count_ };
const char* contended_name(Contended part);  // as in JSON

struct Contention {
  Contended part = Contended::nothing;
  double used = 0;  // the sum of the jobs' shares of that part, each alone on the card; of `nothing`: of multiprocessors
};

// The part of the card that the jobs use most. Nothing: no job is expected to be slowed by 5 % or more.
Contention contention(std::span<const KernelMix> mixes, const Gpu& gpu, SharingMode mode, const PackConstants& constants);

}  // namespace gpucast::pack
