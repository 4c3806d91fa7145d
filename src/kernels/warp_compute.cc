// Predicates and the exchange between lanes.
#include <algorithm>
#include <bit>

#include "src/kernels/lane_bits.h"
#include "src/kernels/warp.h"

namespace gpucast::ptx {
namespace {

template <class F>
void each_lane(LaneValues* out, F f) {
  for (size_t lane = 0; lane < kLanes; ++lane) (*out)[lane] = f(lane);
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
  const bool is_equality = i.comparison == Comparison::eq || i.comparison == Comparison::ne;
  if (equalities_ != nullptr && is_equality && i.source_type.kind != Kind::floating) {
    Equality& noted = equalities_->emplace_back(Equality{bits, lanes, {}});
    for (uint32_t lane = 0; lane < kLanes; ++lane) noted.difference[lane] = a[lane] - b[lane];
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

}  // namespace gpucast::ptx
