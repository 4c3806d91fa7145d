#include "src/search/boundary.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace gpucast::search {
namespace {

constexpr double kMostGrowth = 16;  // of the largest place looked at: beyond it a line through two points says little

// The place where a line through two known places crosses the limit; unset: they are not both known, or it does not rise.
std::optional<double> crossing(const std::map<int64_t, Seen>& seen, int64_t a, int64_t b) {
  const Seen &one = seen.at(a), &two = seen.at(b);
  if (!one.over || !two.over || *two.over <= *one.over) return std::nullopt;
  return static_cast<double>(a) - *one.over * static_cast<double>(b - a) / (*two.over - *one.over);
}

// Where the line through the last known place and one far below it crosses the limit (down: the first one and one far above it). Two
// neighbours would say little: the allocator takes memory in steps.
std::optional<double> extrapolated(const std::map<int64_t, Seen>& seen, bool up) {
  std::vector<int64_t> known;
  for (const auto& [place, look] : seen) {
    if (look.over) known.push_back(place);
  }
  if (known.size() < 2) return std::nullopt;
  const int64_t middle = (known.front() + known.back()) / 2;
  if (up) {
    const auto far = std::ranges::upper_bound(known, middle);
    return crossing(seen, far == known.begin() ? known.front() : *std::prev(far), known.back());
  }
  const auto far = std::ranges::lower_bound(known, middle);
  return crossing(seen, known.front(), far == known.end() || *far == known.front() ? known.back() : *far);
}

std::vector<int64_t> unseen(const std::map<int64_t, Seen>& seen, std::vector<int64_t> places) {
  std::ranges::sort(places);
  places.erase(std::ranges::unique(places).begin(), places.end());
  std::erase_if(places, [&](int64_t place) { return seen.contains(place); });
  return places;
}

std::vector<int64_t> between(const std::map<int64_t, Seen>& seen, int64_t ok, int64_t bad, bool stuck) {
  const std::optional<double> at = stuck ? std::nullopt : crossing(seen, ok, bad);
  if (!at) {  // thirds
    const int64_t third = std::max<int64_t>((bad - ok) / 3, 1);
    return unseen(seen, {ok + third, std::min(ok + 2 * third, bad - 1)});
  }
  const int64_t guess = std::clamp(static_cast<int64_t>(std::floor(*at)), ok, bad - 1);
  return unseen(seen, {guess, guess + 1});
}

std::vector<int64_t> above(const std::map<int64_t, Seen>& seen, int64_t ok, int64_t count) {
  const auto at = extrapolated(seen, true);
  const double most = static_cast<double>(ok + 1) * kMostGrowth - 1;
  const double guess = std::min({at ? std::floor(*at) : most, most, static_cast<double>(count - 1)});
  const int64_t place = std::max(static_cast<int64_t>(guess), ok + 1);
  return unseen(seen, {place, std::min(place + 1, count - 1)});
}

std::vector<int64_t> below(const std::map<int64_t, Seen>& seen, int64_t bad) {
  const auto at = extrapolated(seen, false);
  const double guess = at && *at < static_cast<double>(bad) ? std::max(std::floor(*at), 0.0) : std::floor(static_cast<double>(bad) / 4);
  return unseen(seen, {static_cast<int64_t>(guess), std::min(static_cast<int64_t>(guess) + 1, bad - 1)});
}

}  // namespace

Bracket bracket(const std::map<int64_t, Seen>& seen) {
  Bracket out;
  for (const auto& [place, look] : seen) {
    if (look.ok) {
      out.ok = place;
    } else if (out.ok) {
      out.bad = place;
      return out;
    }
  }
  if (!out.ok && !seen.empty()) out.bad = seen.begin()->first;
  return out;
}

std::vector<int64_t> next_places(const std::map<int64_t, Seen>& seen, int64_t count, int64_t start, bool stuck) {
  start = std::clamp<int64_t>(start, 0, count - 1);
  if (seen.empty()) return unseen(seen, {start, std::min(4 * start + 3, count - 1)});
  const auto [ok, bad] = bracket(seen);
  if (!ok) return *bad == 0 ? std::vector<int64_t>{} : below(seen, *bad);
  if (!bad) return *ok == count - 1 ? std::vector<int64_t>{} : above(seen, *ok, count);
  return *bad == *ok + 1 ? std::vector<int64_t>{} : between(seen, *ok, *bad, stuck);
}

}  // namespace gpucast::search
