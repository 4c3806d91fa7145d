// Meetings that move bytes at the same time. Those that use the same link of the same rank share its bandwidth, and each goes at the pace
// of its slowest rank.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "src/ranks/meetings.h"
#include "src/time/gpu_timeline.h"

namespace gpucast {

class SharedLinks {
 public:
  // `passes`: how many times each meeting of `meetings` takes place. The number of a meeting of pass p is p * meetings.size() + its index.
  SharedLinks(const Meetings& meetings, size_t ranks, size_t passes);

  void begin(uint32_t number, double now_ns);
  double next_end_ns();  // or GpuTimeline::kNever
  uint32_t end_next();   // the number of the meeting that ends then

 private:
  struct Place {
    double load = 0;
    std::vector<uint32_t> moving;
  };
  struct Moving {
    double remaining_ns = 0, rate = 1, since_ns = 0;
    double end_ns = GpuTimeline::kNever;
    uint64_t seen = 0;
  };
  struct End {
    double ns = 0;
    uint32_t number = 0;
    auto operator<=>(const End&) const = default;
  };

  const Meeting& meeting(uint32_t number) const { return meetings_.meetings[number % meetings_.meetings.size()]; }
  template <class Use>
  void for_places(uint32_t number, const Use& use);
  void renew_rates(uint32_t number, double now_ns);
  void renew_rate(uint32_t number, double now_ns);

  const Meetings& meetings_;
  std::vector<Place> places_;  // by rank, link and direction
  std::vector<Moving> moving_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // also of earlier rates
  uint64_t renewals_ = 0;
};

}  // namespace gpucast
