// Advances the saved state of PyTorch's random number generator for the host without drawing numbers (aten/src/ATen/CPUGeneratorImpl.cpp: a
// 32-bit Mersenne Twister, saved in 64-bit words; aten/src/ATen/core/MT19937RNGEngine.h shows when it computes its next 624 words).
// std::mt19937::discard would need ten times as long.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>

#include "src/vgpu/core/core.h"

namespace {

using Engine = std::mt19937;  // for its constants
constexpr int kWords = Engine::state_size;
constexpr int kShift = Engine::shift_size;

// CPUGeneratorImplStateLegacy, up to the last field read here.
struct State {
  uint64_t seed;
  int32_t left;  // 1: the next draw computes new words; else 625 - next
  int32_t seeded;
  uint64_t next;
  uint64_t words[kWords];
};

constexpr uint32_t twist(uint32_t upper, uint32_t lower) {
  const uint32_t both = (upper & 0x80000000U) | (lower & 0x7fffffffU);
  return (both >> 1) ^ ((lower & 1U) != 0 ? Engine::xor_mask : 0U);
}

void next_words(std::array<uint32_t, kWords>& words) {
  uint32_t* const w = words.data();
  for (int i = 0; i < kWords - kShift; ++i) w[i] = w[i + kShift] ^ twist(w[i], w[i + 1]);
  for (int i = kWords - kShift; i < kWords - 1; ++i) w[i] = w[i + kShift - kWords] ^ twist(w[i], w[i + 1]);
  w[kWords - 1] = w[kShift - 1] ^ twist(w[kWords - 1], w[0]);
}

}  // namespace

int gpucast_vgpu_skip_random(void* bytes, uint64_t size_bytes, uint64_t draws) {
  State state;
  if (size_bytes < sizeof state) return -1;
  std::memcpy(&state, bytes, sizeof state);
  if (state.left < 1 || state.left > kWords || state.next > kWords) return -1;
  std::array<uint32_t, kWords> words;
  std::transform(std::begin(state.words), std::end(state.words), words.begin(), [](uint64_t word) { return static_cast<uint32_t>(word); });
  const uint64_t here = static_cast<uint64_t>(state.left) - 1;  // draws before new words are needed
  uint64_t next = state.next + draws;
  if (draws > here) {
    uint64_t rest = draws - here;
    for (; rest > kWords; rest -= kWords) next_words(words);
    next_words(words);
    next = rest;
    std::copy(words.begin(), words.end(), std::begin(state.words));
  }
  if (draws > 0) {
    state.next = next;
    state.left = static_cast<int32_t>(kWords + 1 - next);
  }
  std::memcpy(bytes, &state, sizeof state);
  return 0;
}
