// Integers, predicates and the exchange between lanes.
#include <algorithm>
#include <bit>

#include "src/kernels/warp.h"

namespace gpucast::ptx {
namespace {

uint64_t low_bits(uint64_t value, uint32_t bits) { return bits >= 64 ? value : value & ((1ULL << bits) - 1); }
int64_t with_sign(uint64_t value, uint32_t bits) {
  return bits >= 64 || bits == 0 ? static_cast<int64_t>(value) : static_cast<int64_t>(value << (64 - bits)) >> (64 - bits);
}

template <class F>
void each_lane(LaneValues* out, F f) {
  for (size_t lane = 0; lane < kLanes; ++lane) (*out)[lane] = f(lane);
}

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

bool compares(Comparison comparison, int order) {
  switch (comparison) {
    case Comparison::eq:
      return order == 0;
    case Comparison::ne:
      return order != 0;
    case Comparison::lt:
      return order < 0;
    case Comparison::le:
      return order <= 0;
    case Comparison::gt:
      return order > 0;
    case Comparison::ge:
      return order >= 0;
    default:
      return comparison == Comparison::ordered;
  }
}

bool compares_floats(double a, double b, Comparison comparison, bool unordered_too) {
  if (a != a || b != b) return unordered_too;
  return comparison != Comparison::unordered && compares(comparison, a < b ? -1 : a > b ? 1 : 0);
}

double as_number(uint64_t bits, uint32_t width) {
  return width == 64 ? std::bit_cast<double>(bits) : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
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

void Warp::compute(const Instruction& i, LaneMask lanes) {
  switch (i.op) {
    case Op::unknown_value:
      return unknown_results(i, lanes);
    case Op::compare:
    case Op::compare_bool:
      return compute_comparison(i, lanes);
    case Op::vote:
    case Op::active_lanes:
    case Op::elect:
    case Op::reduce_lanes:
    case Op::shuffle:
    case Op::in_space:
      return compute_lanes(i, lanes);
    default:
      break;
  }
  if (kernel_.is_predicate[result(i, 0)] != 0) return compute_predicate(i, lanes);
  compute_integer(i, lanes);
}

void Warp::compute_predicate(const Instruction& i, LaneMask lanes) {
  const Register x = source(i, 0), y = source(i, 1);
  const auto bits_of = [&](Register r) {
    if (kernel_.is_predicate[r] != 0) return predicates_[r];
    LaneMask out = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) out |= (values(r)[lane] != 0 ? 1U : 0U) << lane;
    return out;
  };
  const LaneMask a = bits_of(x) ^ (i.negated_source && i.sources == 1 ? kAllLanes : 0), b = i.sources > 1 ? bits_of(y) : 0;
  LaneMask out = 0;
  switch (i.op) {
    case Op::move:
      out = a;
      break;
    case Op::bit_not:
      out = ~a;
      break;
    case Op::bit_and:
      out = a & b;
      break;
    case Op::bit_or:
      out = a | b;
      break;
    case Op::bit_xor:
      out = a ^ b;
      break;
    case Op::select:
      out = (predicates_[source(i, 2)] & a) | (~predicates_[source(i, 2)] & b);
      break;
    default:
      return unknown_results(i, lanes);
  }
  LaneMask assumed = assumed_[x] | (i.sources > 1 ? assumed_[y] : 0) | (i.sources > 2 ? assumed_[source(i, 2)] : 0);
  // A known operand can decide alone.
  if (i.op == Op::bit_and) assumed &= ~((~a & ~assumed_[x]) | (~b & ~assumed_[y]));
  if (i.op == Op::bit_or) assumed &= ~((a & ~assumed_[x]) | (b & ~assumed_[y]));
  write_predicate(result(i, 0), lanes, out, assumed);
}

void Warp::compute_comparison(const Instruction& i, LaneMask lanes) {
  const Register x = source(i, 0), y = source(i, 1);
  const LaneValues &a = values(x), &b = values(y);
  const uint32_t bits = i.source_type.bits;
  if (equalities_ != nullptr && (i.comparison == Comparison::eq || i.comparison == Comparison::ne) &&
      i.source_type.kind != Kind::floating) {
    equalities_->push_back({{}, lanes, bits});
    for (uint32_t lane = 0; lane < kLanes; ++lane) equalities_->back().difference[lane] = a[lane] - b[lane];
  }
  LaneMask out = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    bool holds = false;
    if (i.source_type.kind == Kind::floating) {
      holds = bits >= 32 && compares_floats(as_number(a[lane], bits), as_number(b[lane], bits), i.comparison, i.unordered_too);
    } else if (i.source_type.kind == Kind::signed_integer) {
      const int64_t p = with_sign(a[lane], bits), q = with_sign(b[lane], bits);
      holds = compares(i.comparison, p < q ? -1 : p > q ? 1 : 0);
    } else {
      const uint64_t p = low_bits(a[lane], bits), q = low_bits(b[lane], bits);
      holds = compares(i.comparison, p < q ? -1 : p > q ? 1 : 0);
    }
    out |= (holds ? 1U : 0U) << lane;
  }
  LaneMask assumed = assumed_[x] | assumed_[y];
  if (i.source_type.kind == Kind::floating && bits < 32) assumed = kAllLanes;
  LaneMask opposite = ~out;
  if (i.op == Op::compare_bool) {
    const LaneMask with = predicates_[source(i, 2)] ^ (i.negated_source ? kAllLanes : 0), with_assumed = assumed_[source(i, 2)];
    const auto joined = [&](LaneMask m) { return i.mode == Mode::both ? m & with : i.mode == Mode::either ? m | with : m ^ with; };
    LaneMask decided = 0;
    if (i.mode == Mode::both) decided = (~out & ~assumed) | (~with & ~with_assumed);
    if (i.mode == Mode::either) decided = (out & ~assumed) | (with & ~with_assumed);
    opposite = joined(~out);
    out = joined(out);
    assumed = (assumed | with_assumed) & ~decided;
  }
  if (kernel_.is_predicate[result(i, 0)] == 0) {  // set: a number
    LaneValues number;
    const uint64_t yes = i.type.kind == Kind::floating ? 0x3f800000 : low_bits(~0ULL, i.type.bits);
    each_lane(&number, [&](size_t lane) { return (out >> lane & 1) != 0 ? yes : 0; });
    return write(result(i, 0), lanes, number, assumed);
  }
  write_predicate(result(i, 0), lanes, out, assumed);
  if (i.results > 1) write_predicate(result(i, 1), lanes, opposite, assumed);
}

void Warp::shuffle(const Instruction& i, LaneMask lanes) {
  const Register x = source(i, 0);
  const LaneValues &a = values(x), &b = values(source(i, 1)), &c = values(source(i, 2));
  LaneValues out = {};
  LaneMask assumed = assumed_[source(i, 1)] | assumed_[source(i, 2)], in_range = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t by = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
    const uint32_t most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    uint32_t from = lane;
    bool inside = false;
    switch (i.mode) {
      case Mode::up:
        from = lane - by, inside = static_cast<int32_t>(lane - by) >= static_cast<int32_t>(most);
        break;
      case Mode::down:
        from = lane + by, inside = from <= most;
        break;
      case Mode::butterfly:
        from = lane ^ by, inside = from <= most;
        break;
      default:
        from = least | (by & ~segment), inside = from <= most;
    }
    if (!inside) from = lane;
    if (inside) in_range |= 1U << lane;
    out[lane] = low_bits(a[from & 31], 32);
    assumed |= (assumed_[x] >> (from & 31) & 1) << lane;
  }
  write(result(i, 0), lanes, out, assumed);
  if (i.results > 1) write_predicate(result(i, 1), lanes, in_range, assumed_[source(i, 1)]);
}

void Warp::compute_lanes(const Instruction& i, LaneMask lanes) {
  const Register x = source(i, 0), to = result(i, 0);
  if (i.op == Op::shuffle) {
    shuffle(i, lanes);
    return;
  }
  if (i.op == Op::in_space) {
    LaneMask inside = 0;
    const uint64_t window = i.space == Space::shared      ? kSharedWindow
                            : i.space == Space::local     ? kLocalWindow
                            : i.space == Space::parameter ? kParameterWindow
                                                          : 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) inside |= ((values(x)[lane] & kWindowMask) == window ? 1U : 0U) << lane;
    return write_predicate(to, lanes, inside, assumed_[x]);
  }
  LaneValues out = {};
  if (i.op == Op::elect) {
    const LaneMask leader = lanes & (~lanes + 1);
    out.fill(static_cast<uint64_t>(lanes == 0 ? 0 : std::countr_zero(lanes)));
    if (kernel_.is_predicate[to] == 0) write(to, lanes, out, 0);
    for (uint32_t r = 0; r < i.results; ++r) {
      if (kernel_.is_predicate[result(i, r)] != 0) write_predicate(result(i, r), lanes, leader, 0);
    }
    return;
  }
  if (i.op == Op::active_lanes) {
    out.fill(lanes);
    return write(to, lanes, out, 0);
  }
  const LaneMask assumed = (assumed_[x] & lanes) != 0 ? kAllLanes : 0;
  if (i.op == Op::vote) {
    const LaneMask votes = (predicates_[x] ^ (i.negated_source ? kAllLanes : 0)) & lanes;
    if (i.mode == Mode::ballot) {
      out.fill(votes);
      return write(to, lanes, out, assumed);
    }
    const bool holds = i.mode == Mode::any ? votes != 0 : i.mode == Mode::all ? votes == lanes : votes == 0 || votes == lanes;
    return write_predicate(to, lanes, holds ? kAllLanes : 0, assumed);
  }
  const bool is_signed = i.type.kind == Kind::signed_integer;
  uint64_t total = 0;
  bool first = true;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const uint64_t v = is_signed ? static_cast<uint64_t>(with_sign(values(x)[lane], 32)) : low_bits(values(x)[lane], 32);
    const bool less = is_signed ? static_cast<int64_t>(v) < static_cast<int64_t>(total) : v < total;
    switch (first ? Mode::none : i.mode) {
      case Mode::sum:
        total += v;
        break;
      case Mode::both:
        total &= v;
        break;
      case Mode::either:
        total |= v;
        break;
      case Mode::exclusive:
        total ^= v;
        break;
      case Mode::lowest:
        total = less ? v : total;
        break;
      case Mode::highest:
        total = less ? total : v;
        break;
      default:
        total = v;
    }
    first = false;
  }
  out.fill(low_bits(total, 32));
  write(to, lanes, out, assumed);
}

void Warp::compute_integer(const Instruction& i, LaneMask lanes) {
  const Register x = source(i, 0), y = source(i, 1), z = source(i, 2);
  const LaneValues &a = values(x), &b = values(y), &c = values(z);
  const uint32_t bits = std::max<uint32_t>(i.type.bits, 1);
  const bool is_signed = i.type.kind == Kind::signed_integer;
  uint32_t out_bits = bits;
  LaneMask assumed = 0;
  for (uint32_t s = 0; s < i.sources; ++s) assumed |= assumed_[source(i, s)];
  LaneValues out = {};
  const auto ordered = [&](uint64_t p, uint64_t q) {
    return is_signed ? with_sign(p, bits) < with_sign(q, bits) : low_bits(p, bits) < low_bits(q, bits);
  };
  const auto wide = [&](uint64_t v) { return is_signed ? static_cast<uint64_t>(with_sign(v, bits)) : low_bits(v, bits); };
  switch (i.op) {
    case Op::move:
      out = a;
      break;
    case Op::convert:
      each_lane(&out, [&](size_t l) { return converted(a[l], i.source_type, i.type, i.saturates); }), out_bits = 64;
      break;
    case Op::add:
    case Op::sub: {
      if (i.saturates) {
        each_lane(&out, [&](size_t l) {
          const int64_t s = i.op == Op::add ? with_sign(a[l], 32) + with_sign(b[l], 32) : with_sign(a[l], 32) - with_sign(b[l], 32);
          return static_cast<uint64_t>(std::clamp<int64_t>(s, INT32_MIN, INT32_MAX));
        });
        break;
      }
      LaneMask carry = 0;
      each_lane(&out, [&](size_t l) {
        const uint64_t p = low_bits(a[l], bits), q = low_bits(b[l], bits), in = i.carry_in ? carry_ >> l & 1 : 0;
        const uint64_t r = low_bits(i.op == Op::add ? p + q + in : p - q - in, bits);
        const bool over = i.op == Op::add ? r < p || (in != 0 && r == p) : p < q || (in != 0 && p == q);
        carry |= (over ? 1U : 0U) << l;
        return r;
      });
      if (i.carry_in) assumed |= carry_assumed_;
      if (i.carry_out) carry_ = (carry_ & ~lanes) | (carry & lanes), carry_assumed_ = (carry_assumed_ & ~lanes) | (assumed & lanes);
      break;
    }
    case Op::mul_low:
      each_lane(&out, [&](size_t l) { return a[l] * b[l]; });
      break;
    case Op::mul_high:
      each_lane(&out, [&](size_t l) { return high_product(a[l], b[l], bits, is_signed); });
      break;
    case Op::mul_wide:
      each_lane(&out, [&](size_t l) { return wide(a[l]) * wide(b[l]); }), out_bits = std::min(64U, 2 * bits);
      break;
    case Op::mad_low:
      each_lane(&out, [&](size_t l) { return a[l] * b[l] + c[l]; });
      break;
    case Op::mad_high:
      each_lane(&out, [&](size_t l) { return high_product(a[l], b[l], bits, is_signed) + c[l]; });
      break;
    case Op::mad_wide:
      each_lane(&out, [&](size_t l) { return wide(a[l]) * wide(b[l]) + c[l]; }), out_bits = std::min(64U, 2 * bits);
      break;
    case Op::divide:
      each_lane(&out, [&](size_t l) { return divide(a[l], b[l], bits, is_signed, false); });
      break;
    case Op::remainder:
      each_lane(&out, [&](size_t l) { return divide(a[l], b[l], bits, is_signed, true); });
      break;
    case Op::minimum:
      each_lane(&out, [&](size_t l) { return ordered(a[l], b[l]) ? a[l] : b[l]; });
      break;
    case Op::maximum:
      each_lane(&out, [&](size_t l) { return ordered(a[l], b[l]) ? b[l] : a[l]; });
      break;
    case Op::absolute:
      each_lane(&out, [&](size_t l) {
        const int64_t v = with_sign(a[l], bits);
        return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
      });
      break;
    case Op::negate:
      each_lane(&out, [&](size_t l) { return 0 - a[l]; });
      break;
    case Op::bit_not:
      each_lane(&out, [&](size_t l) { return ~a[l]; });
      break;
    case Op::bit_and:
      each_lane(&out, [&](size_t l) { return a[l] & b[l]; });
      break;
    case Op::bit_or:
      each_lane(&out, [&](size_t l) { return a[l] | b[l]; });
      break;
    case Op::bit_xor:
      each_lane(&out, [&](size_t l) { return a[l] ^ b[l]; });
      break;
    case Op::logical_not:
      each_lane(&out, [&](size_t l) { return low_bits(a[l], bits) == 0 ? 1ULL : 0ULL; });
      break;
    case Op::shift_left:
      each_lane(&out, [&](size_t l) {
        const uint64_t n = low_bits(b[l], 32);
        return n >= bits ? 0 : a[l] << n;
      });
      break;
    case Op::shift_right:
      each_lane(&out, [&](size_t l) {
        const uint64_t n = std::min<uint64_t>(low_bits(b[l], 32), bits);
        if (is_signed) return static_cast<uint64_t>(with_sign(a[l], bits) >> std::min<uint64_t>(n, 63));
        return n >= bits ? 0 : low_bits(a[l], bits) >> n;
      });
      break;
    case Op::funnel_left:
    case Op::funnel_right:
      each_lane(&out, [&](size_t l) { return funnel(a[l], b[l], c[l], i.op == Op::funnel_left, i.wraps); }), out_bits = 32;
      break;
    case Op::extract:
      each_lane(&out, [&](size_t l) { return extract_field(a[l], b[l], c[l], bits, is_signed); });
      break;
    case Op::insert: {
      const LaneValues& d = values(source(i, 3));
      each_lane(&out, [&](size_t l) { return insert_field(a[l], b[l], c[l], d[l], bits); });
      break;
    }
    case Op::find_high:
      each_lane(&out, [&](size_t l) { return find_high(a[l], bits, is_signed, i.wraps); }), out_bits = 32;
      break;
    case Op::reverse:
      each_lane(&out, [&](size_t l) { return reverse_bits(a[l], bits); });
      break;
    case Op::population:
      each_lane(&out, [&](size_t l) { return static_cast<uint64_t>(std::popcount(low_bits(a[l], bits))); }), out_bits = 32;
      break;
    case Op::leading_zeros:
      each_lane(&out, [&](size_t l) { return static_cast<uint64_t>(std::countl_zero(low_bits(a[l], bits))) - (64 - bits); }), out_bits = 32;
      break;
    case Op::absolute_difference:
      each_lane(&out, [&](size_t l) { return c[l] + (ordered(a[l], b[l]) ? b[l] - a[l] : a[l] - b[l]); });
      break;
    case Op::lop3:
      each_lane(&out, [&](size_t l) { return table_of_three(a[l], b[l], c[l], i.value); });
      break;
    case Op::permute:
      each_lane(&out, [&](size_t l) { return permute_bytes(a[l], b[l], c[l]); });
      break;
    case Op::sign_extend:
      each_lane(&out, [&](size_t l) {
        if (!i.wraps && low_bits(b[l], 32) >= 32) return a[l];
        const auto n = static_cast<uint32_t>(low_bits(b[l], 5));
        return n == 0 ? 0 : is_signed ? static_cast<uint64_t>(with_sign(a[l], n)) : low_bits(a[l], n);
      });
      break;
    case Op::select: {
      const LaneMask p = predicates_[z];
      each_lane(&out, [&](size_t l) { return (p >> l & 1) != 0 ? a[l] : b[l]; });
      assumed = assumed_[z] | (p & assumed_[x]) | (~p & assumed_[y]);
      break;
    }
    case Op::select_sign:
      each_lane(&out, [&](size_t l) { return with_sign(c[l], 32) >= 0 ? a[l] : b[l]; });
      break;
    case Op::pack: {
      const uint32_t piece = bits / std::max<uint32_t>(i.sources, 1);
      for (uint32_t s = 0; s < i.sources && s * piece < 64; ++s) {
        const LaneValues& v = values(source(i, s));
        for (size_t l = 0; l < kLanes; ++l) out[l] |= low_bits(v[l], piece) << (s * piece);
      }
      break;
    }
    case Op::unpack: {
      const uint32_t piece = bits / std::max<uint32_t>(i.results, 1);
      for (uint32_t r = 0; r < i.results; ++r) {
        LaneValues part;
        each_lane(&part, [&](size_t l) { return r * piece < 64 ? low_bits(a[l] >> (r * piece), piece) : 0; });
        write(result(i, r), lanes, part, assumed);
      }
      return;
    }
    default:
      return unknown_results(i, lanes);
  }
  if (out_bits < 64) each_lane(&out, [&](size_t l) { return low_bits(out[l], out_bits); });
  write(result(i, 0), lanes, out, assumed);
}

}  // namespace gpucast::ptx
