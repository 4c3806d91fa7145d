#include "src/search/boundary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace gpucast::search {
namespace {

struct Found {
  Bracket bracket;
  int looks = 0;
};

// `over`: above the limit at a place; NaN: the script fails there.
Found search(const std::function<double(int64_t)>& over, int64_t count, int64_t start = 7) {
  std::map<int64_t, Seen> seen;
  Found found;
  bool stuck = false;
  for (int64_t width = 0; found.looks < 200;) {
    const auto places = next_places(seen, count, start, stuck);
    if (places.empty()) break;
    EXPECT_LE(places.size(), 2U);
    for (const int64_t place : places) {
      EXPECT_TRUE(place >= 0 && place < count && !seen.contains(place)) << place;
      const double value = over(place);
      seen[place] = std::isnan(value) ? Seen{false, std::nullopt} : Seen{value <= 0, value};
      ++found.looks;
    }
    found.bracket = bracket(seen);
    const int64_t now = found.bracket.ok && found.bracket.bad ? *found.bracket.bad - *found.bracket.ok : 0;
    stuck = width > 0 && now * 2 > width && !stuck;
    width = now;
  }
  return found;
}

TEST(Boundary, ALineIsFoundInThreeRounds) {
  const Found found = search([](int64_t place) { return 100.0 + 3.0 * static_cast<double>(place) - 1000; }, 65536);
  EXPECT_EQ(found.bracket.ok, 300);
  EXPECT_EQ(found.bracket.bad, 301);
  EXPECT_LE(found.looks, 8);
}

TEST(Boundary, EveryCrossingIsFound) {
  for (const int64_t count : {1, 2, 3, 10, 1000}) {
    for (int64_t last = -1; last < count; last += 1 + count / 50) {
      const Found found = search(
          [&](int64_t place) {
            return std::pow(static_cast<double>(place), 1.7) - std::pow(static_cast<double>(last) + 0.5, 1.7) * (last < 0 ? -1 : 1);
          },
          count);
      if (last >= 0) {
        EXPECT_EQ(found.bracket.ok, last) << count;
      } else {
        EXPECT_FALSE(found.bracket.ok);
        EXPECT_EQ(found.bracket.bad, 0);
      }
      EXPECT_EQ(found.bracket.bad.has_value(), last < count - 1);
      EXPECT_LE(found.looks, 24) << count << " " << last;
    }
  }
}

TEST(Boundary, StepsAndDentsOfTheAllocatorDoNotMisleadIt) {
  const auto over = [](int64_t place) {
    const double dent = place % 3 == 0 ? 40.0 : 0.0;
    return std::floor(71.0 * static_cast<double>(place) / 20.5) * 20.5 + dent - 24000;
  };
  const Found found = search(over, 65536);
  ASSERT_TRUE(found.bracket.ok && found.bracket.bad);
  EXPECT_LE(over(*found.bracket.ok), 0);
  EXPECT_GT(over(*found.bracket.bad), 0);
  EXPECT_EQ(*found.bracket.bad, *found.bracket.ok + 1);
  EXPECT_LE(found.looks, 16);
}

TEST(Boundary, AScriptThatFailsAboveAValueIsALimitToo) {
  const Found found = search([](int64_t place) { return place > 40 ? NAN : static_cast<double>(place) - 1e6; }, 65536);
  EXPECT_EQ(found.bracket.ok, 40);
  EXPECT_EQ(found.bracket.bad, 41);
}

TEST(Boundary, WhatFitsAgainBeyondTheFirstThatDoesNotIsLeftOut) {
  const Bracket found = bracket({{1, {true, -1.0}}, {5, {false, 1.0}}, {6, {true, -1.0}}, {9, {false, 2.0}}});
  EXPECT_EQ(found.ok, 1);
  EXPECT_EQ(found.bad, 5);
}

}  // namespace
}  // namespace gpucast::search
