// Arithmetic of integers, exactly.
#include <algorithm>
#include <bit>

#include "src/kernels/lane_bits.h"
#include "src/kernels/warp.h"

namespace gpucast::ptx {
namespace {

uint64_t high_product(uint64_t a, uint64_t b, uint32_t bits, bool is_signed) {
  if (bits < 64) {
    return is_signed ? static_cast<uint64_t>((with_sign(a, bits) * with_sign(b, bits)) >> bits)
                     : (low_bits(a, bits) * low_bits(b, bits)) >> bits;
  }
  const uint64_t a_low = a & 0xffffffff, a_high = a >> 32, b_low = b & 0xffffffff, b_high = b >> 32;
  const uint64_t middle = a_high * b_low + (a_low * b_low >> 32), other = a_low * b_high + (middle & 0xffffffff);
  uint64_t out = a_high * b_high + (middle >> 32) + (other >> 32);
  if (is_signed && static_cast<int64_t>(a) < 0) out -= b;
  if (is_signed && static_cast<int64_t>(b) < 0) out -= a;
  return out;
}

uint64_t divide(uint64_t a, uint64_t b, uint32_t bits, bool is_signed, bool remainder) {
  if (is_signed) {
    const int64_t x = with_sign(a, bits), y = with_sign(b, bits);
    if (y == 0) return remainder ? static_cast<uint64_t>(x) : ~0ULL;
    if (y == -1) return remainder ? 0 : 0 - static_cast<uint64_t>(x);
    return static_cast<uint64_t>(remainder ? x % y : x / y);
  }
  const uint64_t x = low_bits(a, bits), y = low_bits(b, bits);
  if (y == 0) return remainder ? x : ~0ULL;
  return remainder ? x % y : x / y;
}

uint64_t extract_field(uint64_t value, uint64_t position, uint64_t length, uint32_t bits, bool is_signed) {
  const uint64_t at = position & 0xff, count = length & 0xff, most = bits - 1;
  if (count == 0) return 0;
  uint64_t out = at < bits ? low_bits(value, bits) >> at : 0;
  out = low_bits(out, static_cast<uint32_t>(std::min<uint64_t>(count, 64)));
  const bool sign = is_signed && (value >> std::min(at + count - 1, most) & 1) != 0;
  if (sign) {
    const uint64_t present = at < bits ? std::min<uint64_t>(count, bits - at) : 0;
    if (present < 64) out |= ~0ULL << present;
  }
  return out;
}

uint64_t insert_field(uint64_t from, uint64_t into, uint64_t position, uint64_t length, uint32_t bits) {
  const uint64_t at = position & 0xff, count = length & 0xff;
  if (count == 0 || at >= bits) return into;
  const uint64_t mask = low_bits(count >= 64 ? ~0ULL : (1ULL << count) - 1, bits) << at;
  return (into & ~mask) | ((from << at) & mask);
}

uint64_t find_high(uint64_t value, uint32_t bits, bool is_signed, bool as_shift) {
  uint64_t x = low_bits(value, bits);
  if (is_signed && (x >> (bits - 1) & 1) != 0) x = low_bits(~x, bits);
  if (x == 0) return 0xffffffff;
  const auto at = static_cast<uint64_t>(63 - std::countl_zero(x));
  return as_shift ? bits - 1 - at : at;
}

uint64_t reverse_bits(uint64_t value, uint32_t bits) {
  uint64_t out = 0;
  for (uint32_t b = 0; b < bits; ++b) out |= (value >> b & 1) << (bits - 1 - b);
  return out;
}

uint64_t permute_bytes(uint64_t a, uint64_t b, uint64_t choice) {
  const uint64_t all = (a & 0xffffffff) | b << 32;
  uint64_t out = 0;
  for (uint32_t n = 0; n < 4; ++n) {
    const uint64_t which = choice >> (4 * n) & 0xf;
    uint64_t byte = all >> (8 * (which & 7)) & 0xff;
    if ((which & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    out |= byte << (8 * n);
  }
  return out;
}

uint64_t table_of_three(uint64_t a, uint64_t b, uint64_t c, uint32_t table) {
  uint64_t out = 0;
  for (uint32_t n = 0; n < 8; ++n) {
    if ((table >> n & 1) != 0) out |= ((n & 4) != 0 ? a : ~a) & ((n & 2) != 0 ? b : ~b) & ((n & 1) != 0 ? c : ~c);
  }
  return out;
}

uint64_t funnel(uint64_t a, uint64_t b, uint64_t by, bool left, bool wraps) {
  const uint64_t n = wraps ? by & 31 : std::min<uint64_t>(by & 0xffffffff, 32);
  const uint64_t both = (b << 32) | (a & 0xffffffff);
  if (!left) return both >> n;
  return n == 32 ? a : (both << n) >> 32;
}

// The result fills its register: what cvt.s8.u32 gives keeps its sign up to 32 bits and more.
uint64_t converted(uint64_t value, Type from, Type to, bool saturates) {
  const bool is_signed = from.kind == Kind::signed_integer, to_signed = to.kind == Kind::signed_integer;
  const uint64_t x = is_signed ? static_cast<uint64_t>(with_sign(value, from.bits)) : low_bits(value, from.bits);
  if (!saturates) return to_signed ? static_cast<uint64_t>(with_sign(x, to.bits)) : low_bits(x, to.bits);
  if (to_signed) {
    const int64_t most = static_cast<int64_t>(~0ULL >> (65 - to.bits)), least = -most - 1;
    if (!is_signed) return std::min<uint64_t>(x, static_cast<uint64_t>(most));
    return static_cast<uint64_t>(std::clamp(static_cast<int64_t>(x), least, most));
  }
  if (is_signed && static_cast<int64_t>(x) < 0) return 0;
  return std::min(x, low_bits(~0ULL, to.bits));
}

}  // namespace

// Calls f(lane) for all lanes, or once where it gives the same for all. Each lane's result may take the place of its operand.
template <class F>
void Warp::set_lanes(Register to, LaneMask lanes, bool same, LaneMask assumed, F f) {
  if (to == kNoRegister || to >= values_.size()) return;
  load_level_[to] = shared_level_[to] = 0;
  LaneValues& out = values_[to];
  if (lanes == kAllLanes) {
    assumed_[to] = assumed;
    same_[to] = same;
    if (same) {
      out.fill(f(0));
      return;
    }
#pragma GCC ivdep
    for (size_t lane = 0; lane < kLanes; ++lane) out[lane] = f(lane);
    return;
  }
  assumed_[to] = (assumed_[to] & ~lanes) | (assumed & lanes);
  same_[to] = 0;
  for (LaneMask left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<size_t>(std::countr_zero(left));
    out[lane] = f(lane);
  }
}

void Warp::unknown_results(const Instruction& i, LaneMask lanes) {
  for (uint32_t r = 0; r < i.results; ++r) {
    const Register to = result(i, r);
    if (kernel_.is_predicate[to] != 0) {
      write_predicate(to, lanes, 0, kAllLanes);
    } else {
      set_lanes(to, lanes, true, kAllLanes, [](size_t) { return uint64_t{0}; });
    }
  }
}

// The carry flag of each lane is read or written.
void Warp::add_with_carry(const Instruction& i, LaneMask lanes, LaneMask assumed) {
  const LaneValues &a = values(source(i, 0)), &b = values(source(i, 1));
  const uint32_t bits = i.type.bits;
  LaneValues out;
  LaneMask carry = 0;
  for (size_t l = 0; l < kLanes; ++l) {
    const uint64_t p = low_bits(a[l], bits), q = low_bits(b[l], bits), in = i.carry_in ? carry_ >> l & 1 : 0;
    out[l] = low_bits(i.op == Op::add ? p + q + in : p - q - in, bits);
    const bool over = i.op == Op::add ? out[l] < p || (in != 0 && out[l] == p) : p < q || (in != 0 && p == q);
    carry |= (over ? 1U : 0U) << l;
  }
  if (i.carry_in) assumed |= carry_assumed_;
  if (i.carry_out) carry_ = (carry_ & ~lanes) | (carry & lanes), carry_assumed_ = (carry_assumed_ & ~lanes) | (assumed & lanes);
  write(result(i, 0), lanes, out, assumed);
}

void Warp::unpack(const Instruction& i, LaneMask lanes, LaneMask assumed) {
  const LaneValues from = values(source(i, 0));  // a copy: a result may be the same register
  const uint32_t piece = i.type.bits / std::max<uint32_t>(i.results, 1);
  for (uint32_t r = 0; r < i.results; ++r) {
    const uint32_t at = r * piece;
    set_lanes(result(i, r), lanes, false, assumed, [&](size_t l) { return at < 64 ? low_bits(from[l] >> at, piece) : 0; });
  }
}

void Warp::compute_integer(const Instruction& i, LaneMask lanes) {
  const Register x = source(i, 0), y = source(i, 1), z = source(i, 2), to = result(i, 0);
  const LaneValues &a = values(x), &b = values(y), &c = values(z);
  const uint32_t bits = std::max<uint32_t>(i.type.bits, 1);
  const bool is_signed = i.type.kind == Kind::signed_integer;
  LaneMask assumed = 0;
  bool same = true;
  for (uint32_t s = 0; s < i.sources; ++s) {
    const Register r = source(i, s);
    assumed |= assumed_[r];
    same = same && has_one_value(r);
  }
  const uint64_t mask = low_bits(~0ULL, bits), wide_mask = low_bits(~0ULL, std::min(64U, 2 * bits));
  const auto ordered = [&](uint64_t p, uint64_t q) {
    return is_signed ? with_sign(p, bits) < with_sign(q, bits) : low_bits(p, bits) < low_bits(q, bits);
  };
  const uint32_t unused_bits = 64 - std::min(bits, 64U);
  const auto wide = [&](uint64_t v) {
    return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(v << unused_bits) >> unused_bits) : v & mask;
  };
  const auto set = [&](auto f) { set_lanes(to, lanes, same, assumed, f); };
  switch (i.op) {
    case Op::move:
      return set([&](size_t l) { return a[l] & mask; });
    case Op::convert:
      return set([&](size_t l) { return converted(a[l], i.source_type, i.type, i.saturates); });
    case Op::add:
    case Op::sub:
      if (i.carry_in || i.carry_out) return add_with_carry(i, lanes, assumed);
      if (i.saturates) {
        return set([&](size_t l) {
          const int64_t s = i.op == Op::add ? with_sign(a[l], 32) + with_sign(b[l], 32) : with_sign(a[l], 32) - with_sign(b[l], 32);
          return low_bits(static_cast<uint64_t>(std::clamp<int64_t>(s, INT32_MIN, INT32_MAX)), 32);
        });
      }
      return i.op == Op::add ? set([&](size_t l) { return (a[l] + b[l]) & mask; }) : set([&](size_t l) { return (a[l] - b[l]) & mask; });
    case Op::mul_low:
      return set([&](size_t l) { return (a[l] * b[l]) & mask; });
    case Op::mul_high:
      return set([&](size_t l) { return high_product(a[l], b[l], bits, is_signed) & mask; });
    case Op::mul_wide:
      return set([&](size_t l) { return (wide(a[l]) * wide(b[l])) & wide_mask; });
    case Op::mad_low:
      return set([&](size_t l) { return (a[l] * b[l] + c[l]) & mask; });
    case Op::mad_high:
      return set([&](size_t l) { return (high_product(a[l], b[l], bits, is_signed) + c[l]) & mask; });
    case Op::mad_wide:
      return set([&](size_t l) { return (wide(a[l]) * wide(b[l]) + c[l]) & wide_mask; });
    case Op::divide:
      return set([&](size_t l) { return divide(a[l], b[l], bits, is_signed, false) & mask; });
    case Op::remainder:
      return set([&](size_t l) { return divide(a[l], b[l], bits, is_signed, true) & mask; });
    case Op::minimum:
      return set([&](size_t l) { return (ordered(a[l], b[l]) ? a[l] : b[l]) & mask; });
    case Op::maximum:
      return set([&](size_t l) { return (ordered(a[l], b[l]) ? b[l] : a[l]) & mask; });
    case Op::absolute:
      return set([&](size_t l) { return (with_sign(a[l], bits) < 0 ? 0 - a[l] : a[l]) & mask; });
    case Op::negate:
      return set([&](size_t l) { return (0 - a[l]) & mask; });
    case Op::bit_not:
      return set([&](size_t l) { return ~a[l] & mask; });
    case Op::bit_and:
      return set([&](size_t l) { return a[l] & b[l] & mask; });
    case Op::bit_or:
      return set([&](size_t l) { return (a[l] | b[l]) & mask; });
    case Op::bit_xor:
      return set([&](size_t l) { return (a[l] ^ b[l]) & mask; });
    case Op::logical_not:
      return set([&](size_t l) { return (a[l] & mask) == 0 ? 1ULL : 0ULL; });
    case Op::shift_left:
      return set([&](size_t l) {
        const uint64_t n = low_bits(b[l], 32);
        return n >= bits ? 0 : (a[l] << n) & mask;
      });
    case Op::shift_right:
      return set([&](size_t l) {
        const uint64_t n = std::min<uint64_t>(low_bits(b[l], 32), bits);
        if (is_signed) return static_cast<uint64_t>(with_sign(a[l], bits) >> std::min<uint64_t>(n, 63)) & mask;
        return n >= bits ? 0 : (a[l] & mask) >> n;
      });
    case Op::funnel_left:
    case Op::funnel_right:
      return set([&](size_t l) { return low_bits(funnel(a[l], b[l], c[l], i.op == Op::funnel_left, i.wraps), 32); });
    case Op::extract:
      return set([&](size_t l) { return extract_field(a[l], b[l], c[l], bits, is_signed) & mask; });
    case Op::insert: {
      const LaneValues& d = values(source(i, 3));
      return set([&](size_t l) { return insert_field(a[l], b[l], c[l], d[l], bits) & mask; });
    }
    case Op::find_high:
      return set([&](size_t l) { return low_bits(find_high(a[l], bits, is_signed, i.wraps), 32); });
    case Op::reverse:
      return set([&](size_t l) { return reverse_bits(a[l], bits) & mask; });
    case Op::population:
      return set([&](size_t l) { return static_cast<uint64_t>(std::popcount(a[l] & mask)); });
    case Op::leading_zeros:
      return set([&](size_t l) { return static_cast<uint64_t>(std::countl_zero(a[l] & mask)) - (64 - bits); });
    case Op::absolute_difference:
      return set([&](size_t l) { return (c[l] + (ordered(a[l], b[l]) ? b[l] - a[l] : a[l] - b[l])) & mask; });
    case Op::lop3:
      return set([&](size_t l) { return table_of_three(a[l], b[l], c[l], i.value) & mask; });
    case Op::permute:
      return set([&](size_t l) { return permute_bytes(a[l], b[l], c[l]) & mask; });
    case Op::sign_extend:
      return set([&](size_t l) {
        if (!i.wraps && low_bits(b[l], 32) >= 32) return a[l] & mask;
        const auto n = static_cast<uint32_t>(low_bits(b[l], 5));
        return n == 0 ? 0 : is_signed ? static_cast<uint64_t>(with_sign(a[l], n)) & mask : low_bits(a[l], n);
      });
    case Op::select: {
      const LaneMask p = predicates_[z];
      assumed = assumed_[z] | (p & assumed_[x]) | (~p & assumed_[y]);
      same = (p == kAllLanes && has_one_value(x)) || (p == 0 && has_one_value(y));
      return set([&](size_t l) { return ((p >> l & 1) != 0 ? a[l] : b[l]) & mask; });
    }
    case Op::select_sign:
      return set([&](size_t l) { return (with_sign(c[l], 32) >= 0 ? a[l] : b[l]) & mask; });
    case Op::pack: {
      const uint32_t piece = bits / std::max<uint32_t>(i.sources, 1);
      LaneValues out = {};
      for (uint32_t s = 0; s < i.sources && s * piece < 64; ++s) {
        const LaneValues& v = values(source(i, s));
        for (size_t l = 0; l < kLanes; ++l) out[l] |= low_bits(v[l], piece) << (s * piece);
      }
      return set([&](size_t l) { return out[l] & mask; });
    }
    case Op::unpack:
      return unpack(i, lanes, assumed);
    default:
      return unknown_results(i, lanes);
  }
}

}  // namespace gpucast::ptx
