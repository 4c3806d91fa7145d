#include "src/ranks/shared_links.h"

#include <algorithm>

namespace gpucast {

SharedLinks::SharedLinks(const Meetings& meetings, size_t ranks, size_t passes)
    : meetings_(meetings), places_(ranks * static_cast<size_t>(Link::count_) * 2), moving_(meetings.meetings.size() * passes) {}

template <class Use>
void SharedLinks::for_places(uint32_t number, const Use& use) {
  const Meeting& what = meeting(number);
  for (const Attendance& attendance : meetings_.of(what)) {
    if (!attendance.waits) continue;
    const size_t place = (attendance.rank * static_cast<size_t>(Link::count_) + static_cast<size_t>(what.link)) * 2;
    if (attendance.direction != Direction::in) use(places_[place], attendance.link);
    if (attendance.direction != Direction::out) use(places_[place + 1], attendance.link);
  }
}

void SharedLinks::begin(uint32_t number, double now_ns) {
  Moving& moving = moving_[number];
  moving.remaining_ns = meeting(number).duration_ns;
  moving.since_ns = now_ns;
  for_places(number, [&](Place& place, double link) {
    place.load += link;
    place.moving.push_back(number);
  });
  renew_rates(number, now_ns);
}

double SharedLinks::next_end_ns() {
  while (!ends_.empty() && ends_.top().ns != moving_[ends_.top().number].end_ns) ends_.pop();
  return ends_.empty() ? GpuTimeline::kNever : ends_.top().ns;
}

uint32_t SharedLinks::end_next() {
  const auto [now_ns, number] = ends_.top();
  ends_.pop();
  moving_[number].end_ns = GpuTimeline::kNever;
  for_places(number, [&](Place& place, double link) {
    place.moving.erase(std::ranges::find(place.moving, number));
    place.load = place.moving.empty() ? 0 : place.load - link;
  });
  renew_rates(number, now_ns);
  return number;
}

// Of all that share a link with this meeting, and its own.
void SharedLinks::renew_rates(uint32_t number, double now_ns) {
  ++renewals_;
  for_places(number, [&](const Place& place, double) {
    for (const uint32_t other : place.moving) {
      if (std::exchange(moving_[other].seen, renewals_) != renewals_) renew_rate(other, now_ns);
    }
  });
}

void SharedLinks::renew_rate(uint32_t number, double now_ns) {
  double load = 1;
  for_places(number, [&](const Place& place, double) { load = std::max(load, place.load); });
  Moving& moving = moving_[number];
  moving.remaining_ns -= (now_ns - moving.since_ns) * moving.rate;
  moving.since_ns = now_ns;
  moving.rate = 1 / load;
  const double end_ns = now_ns + std::max(0.0, moving.remaining_ns) * load;
  if (end_ns == moving.end_ns) return;
  moving.end_ns = end_ns;
  ends_.push({end_ns, number});
}

}  // namespace gpucast
