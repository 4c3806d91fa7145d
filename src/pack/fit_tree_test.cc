#include "src/pack/fit_tree.h"

#include <gtest/gtest.h>

#include <random>

namespace gpucast::pack {
namespace {

TEST(FitTree, AsALinearSearch) {
  std::mt19937 random(1);
  const auto pick = [&](int high) { return static_cast<int>(random() % static_cast<unsigned>(high)); };
  for (const size_t count : {1U, 2U, 3U, 17U, 64U}) {
    FitTree tree(count);
    std::vector<Capacity> all(count, FitTree::kNothing);
    for (int round = 0; round < 2000; ++round) {
      const size_t place = static_cast<size_t>(pick(static_cast<int>(count)));
      all[place] = pick(5) == 0 ? FitTree::kNothing : Capacity{pick(20), pick(20)};
      tree.set(place, all[place]);
      const Capacity need = {pick(22), pick(22)};
      const size_t from = static_cast<size_t>(pick(static_cast<int>(count) + 2));
      size_t expected = FitTree::kNone;
      for (size_t i = from; i < count && expected == FitTree::kNone; ++i)
        if (all[i].covers(need)) expected = i;
      ASSERT_EQ(tree.find_first(need, from), expected);
    }
  }
}

TEST(FitTree, SkipsUnwantedEntries) {
  FitTree tree(4);
  for (size_t i = 0; i < 4; ++i) tree.set(i, {static_cast<int64_t>(10 + i), 5});
  EXPECT_EQ(tree.find_first({0, 0}, 0, [](const Capacity& most) { return most.bytes > 11; }), 2U);
}

}  // namespace
}  // namespace gpucast::pack
