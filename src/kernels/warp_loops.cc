// Rounds of a loop that do the same, at addresses that move on by the same distance, are not all run. A few show what a period adds and how
// registers move on; then the state jumps ahead. The last period before the loop changes is found by trying: a jump is good if the period
// after it still does the same.
#include <algorithm>
#include <map>
#include <utility>

#include "src/kernels/lane_bits.h"
#include "src/kernels/warp.h"

namespace gpucast::ptx {
namespace {

constexpr uint32_t kFirstRounds = 4;   // a shorter loop runs whole
constexpr uint32_t kMostFailures = 4;  // to compare rounds takes time: where it was in vain, the next look comes twice as late
constexpr size_t kMostPeriod = 8;      // buffers that a pipelined loop takes turns with
constexpr size_t kMostRanges = 1U << 17;
constexpr double kMostCycles = 1U << 31;
constexpr uint64_t kMostPeriods = uint64_t{1} << 40;

bool is_same(const std::vector<LaneValues>& a, const std::vector<LaneValues>& b, const std::vector<LaneValues>& c, LaneMask lanes) {
  for (size_t r = 0; r < a.size(); ++r) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if ((lanes >> lane & 1) != 0 && c[r][lane] - b[r][lane] != b[r][lane] - a[r][lane]) return false;
    }
  }
  return true;
}

Tally difference(const Tally& a, const Tally& b) {
  Tally out;
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

std::vector<uint32_t> difference(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out(a.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

// How far each range of `before` is from its next place in `after`. False: these are not the same ranges.
bool find_strides(const std::vector<ByteRange>& before, const std::vector<ByteRange>& after, std::vector<int64_t>* out) {
  if (before.size() != after.size()) return false;
  for (size_t i = 0; i < before.size(); ++i) {
    if (after[i].end - after[i].begin != before[i].end - before[i].begin) return false;
    out->push_back(static_cast<int64_t>(after[i].begin - before[i].begin));
  }
  return true;
}

// Whether as many sectors are touched wherever the ranges get to. Strides of whole sectors move all alike; others may only move single
// accesses, far from each other.
bool keeps_sectors(const std::vector<ByteRange>& ranges, const int64_t* strides) {
  constexpr int64_t kWhole = 32;  // a sector
  std::vector<ByteRange> others;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (strides[i] % kWhole == 0) continue;
    const uint64_t bytes = ranges[i].end - ranges[i].begin;
    if (bytes > 16 || (bytes & (bytes - 1)) != 0 || ranges[i].begin % bytes != 0 || strides[i] % static_cast<int64_t>(bytes) != 0)
      return false;
    others.push_back(ranges[i]);
  }
  std::sort(others.begin(), others.end());
  for (size_t i = 1; i < others.size(); ++i) {
    if (others[i] != others[i - 1] && others[i].begin - others[i - 1].begin < 2 * kWhole) return false;
  }
  return true;
}

bool moved_on(const std::vector<ByteRange>& from, const std::vector<ByteRange>& to, const int64_t* strides, uint64_t periods) {
  if (from.size() != to.size()) return false;
  for (size_t i = 0; i < from.size(); ++i) {
    if (to[i].end - to[i].begin != from[i].end - from[i].begin) return false;
    if (to[i].begin != from[i].begin + static_cast<uint64_t>(strides[i]) * periods) return false;
  }
  return true;
}

// One period touched `ranges`: adds the ranges of the next `periods`. False: too many.
bool add_moved(const std::vector<ByteRange>& ranges, const int64_t* strides, uint64_t periods, std::vector<ByteRange>* out) {
  std::map<int64_t, std::vector<ByteRange>> by_stride;
  for (size_t i = 0; i < ranges.size(); ++i) by_stride[strides[i]].push_back(ranges[i]);
  for (auto& [stride, some] : by_stride) {
    if (stride == 0) continue;
    const uint64_t distance = static_cast<uint64_t>(stride < 0 ? -stride : stride);
    for (const ByteRange& one : union_of(std::move(some)).ranges) {
      const auto at = [&](uint64_t period) { return static_cast<uint64_t>(stride) * period; };
      if (distance <= one.end - one.begin) {
        const uint64_t first = at(stride > 0 ? 1 : periods), last = at(stride > 0 ? periods : 1);
        out->push_back({one.begin + first, one.end + last});
        continue;
      }
      if (periods > kMostRanges || out->size() > kMostRanges) return false;
      for (uint64_t p = 1; p <= periods; ++p) out->push_back({one.begin + at(p), one.end + at(p)});
    }
  }
  return true;
}

// For how many periods after `last` two numbers that differ still do. They come closer, or go apart, by the same distance each time.
uint64_t periods_apart(const Period& first, const Period& last) {
  if (first.equalities.size() != last.equalities.size()) return 0;
  uint64_t out = kMostPeriods;
  for (size_t e = 0; e < last.equalities.size(); ++e) {
    const Equality &before = first.equalities[e], &now = last.equalities[e];
    if (before.lanes != now.lanes || before.bits != now.bits) return 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if ((now.lanes >> lane & 1) == 0) continue;
      const int64_t at = with_sign(now.difference[lane], now.bits),
                    by = with_sign(now.difference[lane] - before.difference[lane], now.bits);
      const auto size = [](int64_t x) { return x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x); };
      if (by == 0) continue;
      const uint64_t half = uint64_t{1} << (now.bits - 1), left = (at < 0) != (by < 0) && at != 0 ? size(at) - 1 : half - size(at);
      out = std::min(out, left / size(by));
    }
  }
  return out;
}

}  // namespace

Tally Warp::tally() const {
  Tally out;
  auto* to = out.begin();
  for (const auto sum : kSums) *to++ = counts_.*sum;
  to = std::copy(counts_.tensor.begin(), counts_.tensor.end(), to);
  std::copy(counts_.works.begin(), counts_.works.end(), to);
  return out;
}

void Warp::begin_round(uint32_t header) {
  Loop& loop = loops_[header];
  if (loop.is_skipping) return;
  const Path& path = paths_.back();
  const auto begin_anew = [&] {
    if (loop.marked > 0) loop.failures = std::min(loop.failures + 1, kMostFailures);
    loop.header = header, loop.lanes = path.lanes, loop.depth = paths_.size();
    loop.rounds = 0, loop.look_at = kFirstRounds << loop.failures, loop.marked = 0, loop.least_period = 1;
  };
  if (loop.header != header || loop.lanes != path.lanes || loop.depth != paths_.size()) begin_anew();
  if (++loop.rounds < loop.look_at) return;
  if (loop.marks.size() == loop.marked) loop.marks.emplace_back();
  Loop::Mark& mark = loop.marks[loop.marked];
  mark.values = values_, mark.predicates = predicates_, mark.assumed = assumed_, mark.shared_loads = shared_loads_,
  mark.early_guesses = early_guesses_, mark.tally = tally();
  const size_t last = loop.marked++;
  for (size_t period = loop.least_period; period <= kMostPeriod && 2 * period <= last; ++period) {
    const Loop::Mark &a = loop.marks[last - 2 * period], &b = loop.marks[last - period], &c = loop.marks[last];
    if (c.predicates != b.predicates || c.assumed != b.assumed || c.early_guesses != a.early_guesses) continue;
    if (difference(c.shared_loads, b.shared_loads) != difference(b.shared_loads, a.shared_loads)) continue;
    if (difference(c.tally, b.tally) != difference(b.tally, a.tally) || !is_same(a.values, b.values, c.values, loop.lanes)) continue;
    loop.period = static_cast<uint32_t>(period);
    loop.shared_loads = difference(c.shared_loads, b.shared_loads);
    loop.step = c.values;
    loop.moving.clear();
    for (Register r = 0; r < loop.step.size(); ++r) {
      uint64_t any = 0;
      for (uint32_t lane = 0; lane < kLanes; ++lane) any |= loop.step[r][lane] -= b.values[r][lane];
      if (any != 0) loop.moving.push_back(r);
    }
    loop.is_skipping = true;
    const bool skipped = skip_periods(&loop);
    loop.is_skipping = false;
    loop.marked = 0;
    if (skipped) loop.header = kNowhere, loop.failures = 0;
    loop.least_period = static_cast<uint32_t>(period) + 1;  // this one only seemed to be one
    return;
  }
  if (last == 2 * kMostPeriod) {
    loop.marked = 0;
    loop.look_at = 2 * loop.rounds;
    loop.least_period = 1;
  }
}

// Runs until the loop has begun `period` more rounds. False: it ended, or something else happened.
bool Warp::run_period(const Loop& loop, uint64_t most_steps, Period* out) {
  const Tally before = tally();
  const uint64_t steps = steps_;
  const uint32_t begin = begin_, loads = load_now_, shared = shared_now_;
  const double load_cycles = counts_.chain.load_cycles;
  close_log();
  counts_.loads.clear();
  counts_.stores.clear();
  for (uint32_t round = 0; round < loop.period;) {
    if (paths_.size() < loop.depth || paths_.empty() || counts_.cut_off || steps_ - steps > most_steps) {
      arrived_ = kNowhere;
      return false;
    }
    const uint32_t arrived = advance();
    if (arrived == kNowhere || arrived > loop.header) continue;
    // If it is another loop, that one is around this one.
    if (arrived != loop.header || paths_.size() != loop.depth || paths_.back().lanes != loop.lanes) return false;
    ++round;
  }
  close_log();
  out->steps = steps_ - steps;
  out->tally = difference(tally(), before);
  out->predicates = predicates_;
  out->loads = std::move(counts_.loads);
  out->stores = std::move(counts_.stores);
  counts_.loads.clear();
  counts_.stores.clear();
  out->cycles = begin_ - begin;
  out->load_cycles = counts_.chain.load_cycles - load_cycles;
  out->loads_in_chain = load_now_ - loads;
  out->shared_in_chain = shared_now_ - shared;
  return true;
}

void Warp::move_on(const Loop& loop, uint64_t periods) {
  for (size_t i = 0; i < shared_loads_.size(); ++i) shared_loads_[i] += static_cast<uint32_t>(loop.shared_loads[i] * periods);
  for (const Register r : loop.moving) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) values_[r][lane] += (loop.lanes >> lane & 1) != 0 ? loop.step[r][lane] * periods : 0;
    const LaneValues& moved = values_[r];
    if (same_[r] != 0) same_[r] = std::all_of(moved.begin(), moved.end(), [&](uint64_t value) { return value == moved[0]; });
  }
}

// After how many periods one still does the same as `last`, which just ended. The state is then as it was.
uint64_t Warp::periods_alike(Loop* loop, const Period& last, const std::vector<int64_t>& strides, uint64_t most) {
  const WarpState base = *this;
  const auto as_expected = [&](uint64_t periods) {
    for (size_t i = 0; i < shared_loads_.size(); ++i) {
      if (shared_loads_[i] != base.shared_loads_[i] + static_cast<uint32_t>(loop->shared_loads[i] * periods)) return false;
    }
    for (size_t r = 0; r < values_.size(); ++r) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        if ((loop->lanes >> lane & 1) != 0 && values_[r][lane] != base.values_[r][lane] + loop->step[r][lane] * periods) return false;
      }
    }
    return true;
  };
  const auto is_alike = [&](uint64_t periods) {
    if (periods > most) return false;
    move_on(*loop, periods);
    Period period;
    const bool alike = run_period(*loop, 2 * last.steps + 1000, &period) && as_expected(periods + 1) && period.tally == last.tally &&
                       period.predicates == last.predicates && moved_on(last.loads, period.loads, strides.data(), periods + 1) &&
                       moved_on(last.stores, period.stores, strides.data() + last.loads.size(), periods + 1);
    const uint64_t steps = steps_;
    drop_open();
    static_cast<WarpState&>(*this) = base;
    steps_ = steps;  // they were run
    return alike;
  };
  // Most often the loop is as long as in the warp before.
  uint64_t good = 0, bad = loop->periods + 1, distance = 1;
  if (is_alike(bad)) {
    for (good = bad; (bad = good + distance) < kMostPeriods && is_alike(bad); distance *= 2) good = bad;
  } else {
    for (uint64_t one = loop->periods; one > 0 && good == 0; one -= std::min(one, distance), distance *= 2)
      (is_alike(one) ? good : bad) = one;
  }
  while (bad - good > 1) {
    const uint64_t middle = good + (bad - good) / 2;
    (is_alike(middle) ? good : bad) = middle;
  }
  return loop->periods = good;
}

// False: no period was skipped.
bool Warp::skip_periods(Loop* loop) {
  uint64_t periods = 0;
  close_log();
  std::vector<ByteRange> loads = std::move(counts_.loads), stores = std::move(counts_.stores);
  const auto keep = [](const auto& more, auto* all) { all->insert(all->end(), more.begin(), more.end()); };
  Period first, last;
  std::vector<Equality>* const around = std::exchange(equalities_, &first.equalities);  // of a loop around this one
  bool ran = run_period(*loop, kMostSteps, &first);
  equalities_ = &last.equalities;
  ran = ran && run_period(*loop, kMostSteps, &last);
  equalities_ = nullptr;
  if (around != nullptr) {
    for (const Period* one : {&first, &last}) around->insert(around->end(), one->equalities.begin(), one->equalities.end());
  }
  for (const Period* one : {&first, &last}) keep(one->loads, &loads), keep(one->stores, &stores);
  std::vector<int64_t> strides;
  if (ran && first.tally == last.tally && first.predicates == last.predicates && find_strides(first.loads, last.loads, &strides) &&
      find_strides(first.stores, last.stores, &strides) && keeps_sectors(last.loads, strides.data()) &&
      keeps_sectors(last.stores, strides.data() + last.loads.size())) {
    periods = periods_alike(loop, last, strides, periods_apart(first, last));
    if (!add_moved(last.loads, strides.data(), periods, &loads) ||
        !add_moved(last.stores, strides.data() + last.loads.size(), periods, &stores)) {
      counts_.cut_off = true;
    }
    for (size_t n = 0; periods > 0 && n < last.stores.size(); ++n) {  // all periods from the next to the last
      const auto stride = static_cast<uint64_t>(strides[last.loads.size() + n]);
      const uint64_t one = last.stores[n].begin + stride, other = last.stores[n].begin + stride * periods;
      written_.add({std::min(one, other), std::max(one, other) + (last.stores[n].end - last.stores[n].begin)});
    }
    move_on(*loop, periods);
    const auto times = static_cast<double>(periods);
    const auto* each = last.tally.begin();
    for (const auto sum : kSums) counts_.*sum += times * *each++;
    for (double& tensor : counts_.tensor) tensor += times * *each++;
    for (double& work : counts_.works) work += times * *each++;
    counts_.chain.load_cycles += times * last.load_cycles;
    // What is on its way arrives as long after the jump as it would have before it.
    const auto moved = [](double by) { return static_cast<uint32_t>(std::min<double>(by, kMostCycles)); };
    const uint32_t cycles = moved(times * last.cycles), levels = moved(times * last.loads_in_chain),
                   shared = moved(times * last.shared_in_chain);
    for (size_t r = 0; r < ready_.size(); ++r) {
      if (ready_[r] > begin_) ready_[r] += cycles;
      if (load_level_[r] > load_now_) load_level_[r] += levels;
      if (shared_level_[r] > shared_now_) shared_level_[r] += shared;
    }
    for (Arrival& group : groups_) group.ready += cycles, group.level += levels;
    open_group_.ready += cycles, open_group_.level += levels;
    for (auto& [barrier, copies] : bulk_) copies.ready += cycles, copies.level += levels;
    begin_ += cycles, latest_ = latest_load_ = now_ = begin_;
    load_now_ += levels, shared_now_ += shared;
  }
  equalities_ = around;
  keep(counts_.loads, &loads);  // of a period that did not end
  keep(counts_.stores, &stores);
  counts_.loads = std::move(loads);
  counts_.stores = std::move(stores);
  return periods > 0;
}

}  // namespace gpucast::ptx
