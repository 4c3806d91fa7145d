#include "src/pack/mig_slices.h"

#include <algorithm>

namespace gpucast::pack {

uint32_t slice_units(const MigProfile& profile, int start) { return ((1U << profile.memory) - 1) << start; }

int64_t largest_free_profile(std::span<const MigProfile> profiles, uint32_t taken_units) {
  for (size_t p = profiles.size(); p > 0; --p)
    for (const int start : profiles[p - 1].starts)
      if ((slice_units(profiles[p - 1], start) & taken_units) == 0) return static_cast<int64_t>(p);
  return 0;
}

void take_slice(std::span<const MigProfile> profiles, int profile, uint32_t job, MigSlices* card) {
  const MigProfile& wanted = profiles[static_cast<size_t>(profile)];
  uint32_t best_units = 0;
  int64_t most_room = -1;
  for (const int start : wanted.starts) {
    const uint32_t units = slice_units(wanted, start);
    if ((units & card->taken_units) != 0) continue;
    const int64_t room = largest_free_profile(profiles, card->taken_units | units);
    if (room <= most_room) continue;
    most_room = room;
    best_units = units;
  }
  card->taken_units |= best_units;
  card->slices.push_back({job, best_units});
}

void release_slice(uint32_t job, MigSlices* card) {
  const auto slice = std::find_if(card->slices.begin(), card->slices.end(), [&](const MigSlices::Slice& s) { return s.job == job; });
  card->taken_units &= ~slice->units;
  card->slices.erase(slice);
}

}  // namespace gpucast::pack
