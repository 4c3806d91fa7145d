// Advances the saved state of PyTorch's random number generator for the host without drawing numbers (aten/src/ATen/CPUGeneratorImpl.cpp: a
// 32-bit Mersenne Twister, saved in 64-bit words; aten/src/ATen/core/MT19937RNGEngine.h shows when it computes its next 624 words).
// std::mt19937::discard would need ten times as long.
//
// Many draws are one jump (Haramoto, Matsumoto, Nishimura, Panneton, L'Ecuyer 2008, "Efficient Jump Ahead for F2-Linear Random Number
// Generators"). The generator is linear over GF(2). The state n words later is a sum of the next 19937 states: x^n modulo the
// characteristic polynomial has a coefficient for each.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <vector>

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

// ---- jumps ----------------------------------------------------------------------------------------------------

// A polynomial over GF(2), twice as long as the longest remainder: bit i % 64 of word i / 64 is the coefficient of x^i.
constexpr int kDegree = 19937;  // of the characteristic polynomial
constexpr int kTopWord = kDegree / 64;
constexpr int kTopBit = kDegree % 64;
using Polynomial = std::array<uint64_t, 2 * (size_t{kTopWord} + 1)>;

constexpr uint64_t kLeastJump = uint64_t{1} << 24;  // words; fewer are faster one by one

void add(uint64_t bits, int exponent, Polynomial* to) {
  const auto word = static_cast<size_t>(exponent / 64);
  const int shift = exponent % 64;
  (*to)[word] ^= bits << shift;
  if (shift > 0 && word + 1 < to->size()) (*to)[word + 1] ^= bits >> (64 - shift);
}

Polynomial shifted(const Polynomial& polynomial, int by) {
  Polynomial out{};
  for (int i = 0; i * 64 + by < static_cast<int>(out.size()) * 64; ++i) add(polynomial[static_cast<size_t>(i)], i * 64 + by, &out);
  return out;
}

Polynomial sum(Polynomial a, const Polynomial& b) {
  std::ranges::transform(a, b, a.begin(), std::bit_xor());
  return a;
}

// The exponents of the characteristic polynomial but the highest. With F = x^624 + x^397, G = x^623 + x^396 and the bits a_i of the twist's
// mask, it is F (G^31 + a_0 G^30 + ... + a_30) + a_31 (Matsumoto and Nishimura 1998, "Mersenne Twister", appendix A).
std::vector<int> lower_exponents() {
  const auto times = [](const Polynomial& polynomial, int exponent) {
    return sum(shifted(polynomial, exponent), shifted(polynomial, exponent - (kWords - kShift)));
  };
  Polynomial polynomial{1};
  for (int i = 0; i < 31; ++i) {
    polynomial = times(polynomial, kWords - 1);
    polynomial[0] ^= Engine::xor_mask >> i & 1U;
  }
  polynomial = times(polynomial, kWords);
  polynomial[0] ^= Engine::xor_mask >> 31 & 1U;
  std::vector<int> out;
  for (int i = 0; i < kDegree; ++i) {
    if ((polynomial[static_cast<size_t>(i / 64)] >> (i % 64) & 1U) != 0) out.push_back(i);
  }
  return out;
}

// Modulo the characteristic polynomial, whose second highest exponent is lower than the highest by more than a word.
void reduce(std::span<const int> lower, Polynomial* polynomial) {
  for (int i = static_cast<int>(polynomial->size()) - 1; i >= kTopWord; --i) {
    uint64_t& word = (*polynomial)[static_cast<size_t>(i)];
    const int kept = i > kTopWord ? 0 : kTopBit;
    const uint64_t bits = word >> kept;
    word ^= bits << kept;
    if (bits == 0) continue;
    for (const int exponent : lower) add(bits, i * 64 + kept - kDegree + exponent, polynomial);
  }
}

// The 32 bits at even places.
constexpr uint64_t spread(uint64_t bits) {
  bits = (bits | bits << 16) & 0x0000ffff0000ffffU;
  bits = (bits | bits << 8) & 0x00ff00ff00ff00ffU;
  bits = (bits | bits << 4) & 0x0f0f0f0f0f0f0f0fU;
  bits = (bits | bits << 2) & 0x3333333333333333U;
  return (bits | bits << 1) & 0x5555555555555555U;
}

// x^exponent modulo the characteristic polynomial.
Polynomial power(uint64_t exponent) {
  static const std::vector<int> lower = lower_exponents();
  Polynomial out{1};
  for (int bit = static_cast<int>(std::bit_width(exponent)) - 1; bit >= 0; --bit) {
    Polynomial square{};
    for (size_t i = 0; i <= kTopWord; ++i) {
      square[2 * i] = spread(out[i] & 0xffffffffU);
      square[2 * i + 1] = spread(out[i] >> 32);
    }
    out = (exponent >> bit & 1U) != 0 ? shifted(square, 1) : square;
    reduce(lower, &out);
  }
  return out;
}

// All but the low 31 bits of the first word, which decide no later one.
void jump(uint64_t by_words, std::array<uint32_t, kWords>* words) {
  std::vector<uint32_t> sequence(words->begin(), words->end());
  sequence.reserve(kDegree + kWords);
  for (size_t i = 0; i < kDegree; ++i) sequence.push_back(sequence[i + kShift] ^ twist(sequence[i], sequence[i + 1]));
  const Polynomial polynomial = power(by_words);
  words->fill(0);
  for (size_t i = 0; i < kDegree; ++i) {
    if ((polynomial[i / 64] >> (i % 64) & 1U) == 0) continue;
    for (size_t j = 0; j < kWords; ++j) (*words)[j] ^= sequence[i + j];
  }
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
    if (rest > kLeastJump) {
      const uint64_t by_words = (rest - 1) / kWords * kWords;
      jump(by_words, &words);
      rest -= by_words;
    }
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
