// Arithmetic of the slow interpreter, bit by bit as the PTX ISA writes it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpucast::slow {

struct Form {  // of an opcode
  std::vector<std::string> words;
  int bits = 32, source_bits = 32;
  bool is_signed = false, source_is_signed = false;
  bool hi = false, sat = false, shiftamt = false, wrap = false, clamp = false, left = false;  // what rules ask for, found once
  bool has(const std::string& word) const { return std::find(words.begin(), words.end(), word) != words.end(); }
};

inline uint64_t zeros_above(uint64_t x, int bits) { return bits >= 64 ? x : x & ((1ULL << bits) - 1); }
inline int64_t sign_above(uint64_t x, int bits) {
  x = zeros_above(x, bits);
  if (bits < 64 && (x >> (bits - 1)) != 0) x |= ~0ULL << bits;
  return static_cast<int64_t>(x);
}
__extension__ typedef __int128 Wide;
inline Wide number(const Form& f, uint64_t x) {
  return f.is_signed ? static_cast<Wide>(sign_above(x, f.bits)) : static_cast<Wide>(zeros_above(x, f.bits));
}
inline bool bit(uint64_t x, int at) { return (x >> at & 1) != 0; }

inline bool compared(const std::string& how, Wide a, Wide b) {
  if (how == "eq") return a == b;
  if (how == "ne") return a != b;
  if (how == "lt" || how == "lo") return a < b;
  if (how == "le" || how == "ls") return a <= b;
  if (how == "gt" || how == "hi") return a > b;
  return a >= b;
}

using Sources = std::array<uint64_t, 4>;
using Rule = uint64_t (*)(const Form&, const Sources&);

inline uint64_t product(const Form& f, const Sources& v) {
  __extension__ typedef unsigned __int128 Natural;
  if (!f.is_signed) {
    const Natural all = static_cast<Natural>(number(f, v[0])) * static_cast<Natural>(number(f, v[1]));
    return static_cast<uint64_t>(f.hi ? all >> f.bits : all);
  }
  const Wide all = number(f, v[0]) * number(f, v[1]);
  return static_cast<uint64_t>(f.hi ? all >> f.bits : all);
}
inline uint64_t bits_from(const Form& f, const Sources& v) {  // bfe
  const int msb = f.bits - 1, pos = static_cast<int>(v[1] & 0xff), len = static_cast<int>(v[2] & 0xff);
  const bool sbit = f.is_signed && len != 0 && bit(v[0], std::min(pos + len - 1, msb));
  uint64_t d = 0;
  for (int i = 0; i <= msb; ++i) d |= static_cast<uint64_t>(i < len && pos + i <= msb ? bit(v[0], pos + i) : sbit) << i;
  return d;
}
inline uint64_t bits_into(const Form& f, const Sources& v) {  // bfi
  const int msb = f.bits - 1, pos = static_cast<int>(v[2] & 0xff), len = static_cast<int>(v[3] & 0xff);
  uint64_t d = v[1];
  for (int i = 0; i < len && pos + i <= msb; ++i) d = (d & ~(1ULL << (pos + i))) | static_cast<uint64_t>(bit(v[0], i)) << (pos + i);
  return d;
}
inline uint64_t highest_bit(const Form& f, const Sources& v) {  // bfind
  uint64_t a = v[0];
  const int msb = f.bits - 1;
  if (f.is_signed && bit(a, msb)) a = ~a;
  for (int i = msb; i >= 0; --i) {
    if (bit(a, i)) return static_cast<uint64_t>(f.shiftamt ? msb - i : i);
  }
  return 0xffffffff;
}
inline uint64_t bytes_chosen(const Form&, const Sources& v) {  // prmt
  uint64_t d = 0;
  for (int i = 0; i < 4; ++i) {
    const auto choice = static_cast<int>(v[2] >> (4 * i) & 0xf);
    uint64_t byte = (choice & 4 ? v[1] >> (8 * (choice & 3)) : v[0] >> (8 * (choice & 3))) & 0xff;
    if (choice & 8) byte = bit(byte, 7) ? 0xff : 0;
    d |= byte << (8 * i);
  }
  return d;
}
inline uint64_t two_words_shifted(const Form& f, const Sources& v) {  // shf
  const uint64_t n = f.wrap ? v[2] & 31 : std::min<uint64_t>(zeros_above(v[2], 32), 32);
  const Wide both = static_cast<Wide>(zeros_above(v[1], 32)) << 32 | static_cast<Wide>(zeros_above(v[0], 32));
  return static_cast<uint64_t>(f.left ? (both << n) >> 32 : both >> n);
}
inline uint64_t table_of_bits(const Form& f, const Sources& v) {  // lop3
  uint64_t d = 0;
  for (int i = 0; i < f.bits; ++i) {
    const int row = (bit(v[0], i) ? 4 : 0) + (bit(v[1], i) ? 2 : 0) + (bit(v[2], i) ? 1 : 0);
    d |= static_cast<uint64_t>(bit(v[3], row)) << i;
  }
  return d;
}
inline uint64_t extended(const Form& f, const Sources& v) {  // szext
  uint64_t n = zeros_above(v[1], 32);
  if (n >= 32 && f.clamp) return v[0];
  n &= 31;
  if (n == 0) return 0;
  return f.is_signed ? static_cast<uint64_t>(sign_above(v[0], static_cast<int>(n))) : zeros_above(v[0], static_cast<int>(n));
}
inline uint64_t in_another_type(const Form& f, const Sources& v) {  // cvt
  Wide x = f.source_is_signed ? static_cast<Wide>(sign_above(v[0], f.source_bits)) : static_cast<Wide>(zeros_above(v[0], f.source_bits));
  const Wide one = 1, most = (one << (f.is_signed ? f.bits - 1 : f.bits)) - 1, least = f.is_signed ? -most - 1 : 0;
  if (f.sat) x = std::clamp(x, least, most);
  const auto low = static_cast<uint64_t>(x);
  return f.is_signed ? static_cast<uint64_t>(sign_above(low, f.bits)) : zeros_above(low, f.bits);
}
inline uint64_t bits_counted(const Form& f, const Sources& v) {  // popc
  uint64_t n = 0;
  for (int i = 0; i < f.bits; ++i) n += bit(v[0], i);
  return n;
}
inline uint64_t zeros_counted(const Form& f, const Sources& v) {  // clz
  uint64_t n = 0;
  while (n < static_cast<uint64_t>(f.bits) && !bit(v[0], f.bits - 1 - static_cast<int>(n))) ++n;
  return n;
}
inline uint64_t turned_round(const Form& f, const Sources& v) {  // brev
  uint64_t d = 0;
  for (int i = 0; i < f.bits; ++i) d |= static_cast<uint64_t>(bit(v[0], f.bits - 1 - i)) << i;
  return d;
}

// Results are cut to the width of the type; of cvt, mul.wide, mad.wide and those that count bits, to the width of the register.
inline const std::map<std::string, Rule>& rules() {
  using F = const Form&;
  using S = const Sources&;
  static const std::map<std::string, Rule> table = {
      {"mov", [](F, S v) { return v[0]; }},
      {"add",
       [](F f, S v) {
         const Wide sum = number(f, v[0]) + number(f, v[1]);
         return static_cast<uint64_t>(f.sat ? std::clamp<Wide>(sum, INT32_MIN, INT32_MAX) : sum);
       }},
      {"sub",
       [](F f, S v) {
         const Wide rest = number(f, v[0]) - number(f, v[1]);
         return static_cast<uint64_t>(f.sat ? std::clamp<Wide>(rest, INT32_MIN, INT32_MAX) : rest);
       }},
      {"mul", product},
      {"mad", [](F f, S v) { return product(f, v) + v[2]; }},
      {"div", [](F f, S v) { return static_cast<uint64_t>(number(f, v[0]) / number(f, v[1])); }},
      {"rem", [](F f, S v) { return static_cast<uint64_t>(number(f, v[0]) % number(f, v[1])); }},
      {"min", [](F f, S v) { return static_cast<uint64_t>(std::min(number(f, v[0]), number(f, v[1]))); }},
      {"max", [](F f, S v) { return static_cast<uint64_t>(std::max(number(f, v[0]), number(f, v[1]))); }},
      {"abs", [](F f, S v) { return static_cast<uint64_t>(std::max(number(f, v[0]), -number(f, v[0]))); }},
      {"neg", [](F f, S v) { return static_cast<uint64_t>(-number(f, v[0])); }},
      {"not", [](F f, S v) { return f.bits == 1 ? v[0] ^ 1 : ~v[0]; }},
      {"and", [](F, S v) { return v[0] & v[1]; }},
      {"or", [](F, S v) { return v[0] | v[1]; }},
      {"xor", [](F, S v) { return v[0] ^ v[1]; }},
      {"cnot", [](F f, S v) { return static_cast<uint64_t>(zeros_above(v[0], f.bits) == 0); }},
      {"shl", [](F f, S v) { return zeros_above(v[1], 32) >= static_cast<uint64_t>(f.bits) ? 0 : v[0] << zeros_above(v[1], 32); }},
      {"shr",
       [](F f, S v) {
         const uint64_t n = std::min<uint64_t>(zeros_above(v[1], 32), static_cast<uint64_t>(f.bits));
         return static_cast<uint64_t>(number(f, v[0]) >> n);
       }},
      {"shf", two_words_shifted},
      {"bfe", bits_from},
      {"bfi", bits_into},
      {"bfind", highest_bit},
      {"brev", turned_round},
      {"popc", bits_counted},
      {"clz", zeros_counted},
      {"sad", [](F f, S v) { return v[2] + static_cast<uint64_t>(number(f, v[0]) < number(f, v[1]) ? v[1] - v[0] : v[0] - v[1]); }},
      {"lop3", table_of_bits},
      {"prmt", bytes_chosen},
      {"szext", extended},
      {"cvt", in_another_type},
      {"selp", [](F, S v) { return v[2] != 0 ? v[0] : v[1]; }},
      {"slct", [](F, S v) { return sign_above(v[2], 32) >= 0 ? v[0] : v[1]; }},
      {"set", [](F f, S v) {
         Form of_sources = f;
         of_sources.bits = f.source_bits, of_sources.is_signed = f.source_is_signed;
         return compared(f.words[1], number(of_sources, v[0]), number(of_sources, v[1])) ? ~uint64_t{0} : uint64_t{0};
       }}};
  return table;
}

}  // namespace gpucast::slow
