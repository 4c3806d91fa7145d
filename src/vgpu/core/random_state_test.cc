#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>

#include "src/vgpu/core/core.h"

namespace {

// A generator's saved state, and the number that it would draw next.
struct Generator {
  std::array<uint64_t, 632> state{};  // seed, left and seeded, next, 624 words; the rest does not belong to the generator

  explicit Generator(uint32_t seed) {
    const int32_t left_and_seeded[2] = {1, 1};
    state[0] = seed;
    std::memcpy(&state[1], left_and_seeded, sizeof left_and_seeded);
    uint32_t word = seed;
    for (uint32_t i = 0; i < 624; ++i) {
      if (i > 0) word = 1812433253U * (word ^ (word >> 30)) + i;
      state[3 + i] = word;
    }
  }
  int skip(uint64_t draws) { return gpucast_vgpu_skip_random(state.data(), sizeof state, draws); }
  int32_t left() const { return static_cast<int32_t>(state[1] & 0xffffffffU); }
  uint32_t draw() {
    EXPECT_EQ(skip(1), 0);
    auto word = static_cast<uint32_t>(state[3 + state[2] - 1]);
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680U;
    word ^= (word << 15) & 0xefc60000U;
    return word ^ (word >> 18);
  }
};

TEST(RandomState, SkipsAsDrawingWould) {
  for (const uint64_t draws : {0, 1, 2, 623, 624, 625, 1247, 1248, 1249, 100'000}) {
    Generator generator(5489);
    std::mt19937 expected(5489);
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(generator.skip(draws), 0);
      expected.discard(draws);
      EXPECT_EQ(generator.draw(), expected()) << draws << " in round " << round;
      EXPECT_EQ(generator.left(), static_cast<int32_t>(625 - generator.state[2]));
    }
  }
}

TEST(RandomState, JumpsWhereManyAreSkipped) {
  for (const uint64_t draws : {(uint64_t{1} << 24) + 1, (uint64_t{1} << 24) + 625, uint64_t{30'000'000}, uint64_t{99'999'999}}) {
    Generator generator(7);
    std::mt19937 expected(7);
    EXPECT_EQ(generator.draw(), expected());
    ASSERT_EQ(generator.skip(draws), 0);
    expected.discard(draws);
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(generator.draw(), expected()) << draws << ", then " << i;
  }
}

TEST(RandomState, RefusesWhatIsNoState) {
  Generator generator(1);
  EXPECT_EQ(gpucast_vgpu_skip_random(generator.state.data(), 5000, 1), -1);
  const Generator before = generator;
  generator.state[1] = 0;  // left = 0
  EXPECT_EQ(generator.skip(1), -1);
  generator = before;
  generator.state[2] = 625;
  EXPECT_EQ(generator.skip(1), -1);
}

}  // namespace
