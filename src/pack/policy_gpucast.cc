#include "src/pack/policy.h"

namespace gpucast::pack {
namespace {

// Progress of all jobs on the card, that of one alone being 1.
double progress(std::span<const Slowdown> slowdowns) {
  double out = 0;
  for (const Slowdown& slowdown : slowdowns) out += 1 / slowdown.expected;
  return out;
}

}  // namespace

const Policy kGpucastPolicy = {
    "gpucast", "memory requests add up to at most the card's memory, and jobs sit together where the card's progress grows most",
    [](const Figures&) { return 0.0; }, true,
    [](std::span<const Slowdown> before, std::span<const Slowdown> after) { return progress(after) - progress(before); }};

}  // namespace gpucast::pack
