#include "src/time/gpu_timeline.h"

#include <algorithm>
#include <utility>

namespace gpucast {
namespace {

constexpr double kNothingNs = 0.01;  // work with less than this left is done: floating point sums are not exact
constexpr size_t kDoneItems = 1024;  // a stream that is never empty keeps at most this many done items

}  // namespace

void GpuTimeline::Stream::pop() {
  ++next;
  if (next == items.size()) {
    items.clear();
    next = 0;
  } else if (next >= kDoneItems && 2 * next > items.size()) {
    items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(next));
    next = 0;
  }
}

uint32_t GpuTimeline::add_stream(int priority) {
  streams_.emplace_back();
  streams_.back().priority =
      static_cast<size_t>(std::clamp(priority + static_cast<int>(kPriorities) - 1, 0, static_cast<int>(kPriorities) - 1));
  return static_cast<uint32_t>(streams_.size() - 1);
}

void GpuTimeline::push(uint32_t stream, const Item& item) {
  if (streams_[stream].empty()) active_.push_back(stream);
  streams_[stream].items.push_back(item);
}

size_t GpuTimeline::push_work(uint32_t stream, const Item& item) {
  if (shares_.size() <= item.engine) {
    shares_.resize(item.engine + size_t{1});
    swept_.resize(shares_.size());
    left_.resize(shares_.size());
  }
  push(stream, item);
  if (keeps_spans_) spans_.push_back({});
  return works_++;
}

size_t GpuTimeline::add_work(uint32_t stream, double ready_ns, const Work& work) {
  const size_t engine = work.card * kEngines + static_cast<size_t>(work.engine);
  return push_work(stream, {ItemKind::work, false, work.sweeps_l2, work.limited_by_memory, static_cast<uint16_t>(engine), ready_ns,
                            work.duration_ns, work.demand, 0, work.cold_ns, works_});
}

size_t GpuTimeline::add_gate(uint32_t stream, double ready_ns, double multiprocessors, size_t card) {
  const size_t engine = card * kEngines + static_cast<size_t>(Engine::compute);
  return push_work(stream,
                   {ItemKind::gate, false, false, false, static_cast<uint16_t>(engine), ready_ns, kNever, multiprocessors, 0, 0, works_});
}

GpuTimeline::EventId GpuTimeline::record(uint32_t stream, double ready_ns) {
  EventId event = events_.size();
  if (free_events_.empty()) {
    events_.emplace_back();
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  events_[event] = {-1, 2};  // the caller and the stream
  push(stream, {ItemKind::record, false, false, false, 0, ready_ns, 0, 0, 0, 0, event});
  return event;
}

void GpuTimeline::wait(uint32_t stream, EventId event, double ready_ns) {
  ++events_[event].users;
  push(stream, {ItemKind::wait, false, false, false, 0, ready_ns, 0, 0, 0, 0, event});
}

void GpuTimeline::release(EventId event) { drop(event); }

void GpuTimeline::drop(EventId event) {
  if (--events_[event].users == 0) free_events_.push_back(event);
}

template <class Done>
void GpuTimeline::run_until(const Done& done) {
  begin_what_can();
  while (!done() && step(kNever)) begin_what_can();
}

double GpuTimeline::finish_stream(uint32_t stream) {
  run_until([&] { return streams_[stream].empty(); });
  return streams_[stream].done_ns;
}

double GpuTimeline::finish_event(EventId event) {
  run_until([&] { return done(event); });
  return event_ns(event);
}

double GpuTimeline::finish() {
  run_until([&] { return active_.empty(); });
  double out = 0;
  for (const Stream& stream : streams_) out = std::max(out, stream.done_ns);
  return out;
}

void GpuTimeline::advance(double until_ns) {
  begin_what_can();
  if (until_ns <= now_ns_) return;
  while (step(until_ns)) begin_what_can();
  now_ns_ = until_ns;
  begin_what_can();
}

GpuTimeline GpuTimeline::ahead() const {
  GpuTimeline out(*this);
  out.told_ = nullptr;
  out.keeps_spans_ = false;
  return out;
}

double GpuTimeline::when_pending(uint32_t stream, size_t most) const {
  if (pending(stream) <= most) return streams_[stream].done_ns;
  GpuTimeline out = ahead();
  out.run_until([&] { return out.pending(stream) <= most; });
  return out.pending(stream) <= most ? out.streams_[stream].done_ns : kNever;
}

double GpuTimeline::when_done(EventId event) const {
  if (done(event)) return event_ns(event);
  const double ns = ahead().finish_event(event);
  return ns >= 0 ? ns : kNever;
}

double GpuTimeline::when_all_done() const {
  GpuTimeline out = ahead();
  const double ns = out.finish();
  return out.active_.empty() ? ns : kNever;
}

double GpuTimeline::when_reached() const {
  GpuTimeline out = ahead();
  out.reached_.clear();
  out.run_until([&] { return !out.reached_.empty(); });
  return out.reached_.empty() ? kNever : out.now_ns_;
}

void GpuTimeline::begin(uint32_t stream, Item& item) {
  item.started = true;
  item.start_ns = now_ns_;
  if (item.kind == ItemKind::gate) reached_.push_back({stream, item.index, now_ns_});
  if (item.kind == ItemKind::gate || item.demand <= 0) return;
  if (swept_[item.engine]) item.remaining_ns += item.cold_ns;
  swept_[item.engine] = item.sweeps_l2;
}

// Events that are due happen now, and the first work of each stream begins.
void GpuTimeline::begin_what_can() {
  for (bool more = true; more;) {
    more = false;
    for (const uint32_t number : active_) {
      Stream& stream = streams_[number];
      while (!stream.empty() && stream.items[stream.next].ready_ns <= now_ns_) {
        Item& item = stream.items[stream.next];
        if (item.kind == ItemKind::work || item.kind == ItemKind::gate) {
          if (!item.started) begin(number, item);
          break;
        }
        if (item.kind == ItemKind::wait && !done(item.index)) break;
        if (item.kind == ItemKind::record) {
          events_[item.index].at_ns = now_ns_;
          more = true;  // another stream may wait for it
        }
        drop(item.index);
        stream.done_ns = now_ns_;
        stream.pop();
      }
    }
  }
  std::erase_if(active_, [this](uint32_t stream) { return streams_[stream].empty(); });
}

// Higher priorities get all that they demand. The first priority for which not enough is left shares the rest; later ones get nothing.
void GpuTimeline::share_engines() {
  if (active_.size() == 1) {  // it has the card alone
    const Stream& stream = streams_[active_.front()];
    const Item& item = stream.items[stream.next];
    if (item.started) shares_[item.engine][item.limited_by_memory][stream.priority] = item.demand <= 1 ? 1 : 1 / item.demand;
    return;
  }
  for (auto& of_engine : shares_) of_engine[0].fill(0);
  std::ranges::fill(left_, std::array<double, 2>{1, 1});
  for (const uint32_t number : active_) {
    const Stream& stream = streams_[number];
    const Item& item = stream.items[stream.next];
    if (!item.started) continue;
    if (item.kind == ItemKind::gate) {
      left_[item.engine][0] *= 1 - item.demand;
      left_[item.engine][1] *= 1 - stream.memory;
    } else {
      shares_[item.engine][0][stream.priority] += item.demand;
    }
  }
  for (size_t engine = 0; engine < shares_.size(); ++engine) {
    shares_[engine][1] = shares_[engine][0];
    for (size_t limit = 0; limit < 2; ++limit) {
      double left = left_[engine][limit];
      for (double& one : shares_[engine][limit]) {
        const double asked = one;
        one = asked <= left ? 1 : left / asked;
        left = std::max(0.0, left - asked);
      }
    }
  }
}

double GpuTimeline::next_moment() {
  double next = kNever;
  for (const uint32_t number : active_) {
    const Stream& stream = streams_[number];
    const Item& item = stream.items[stream.next];
    if (item.started) {
      if (item.kind == ItemKind::gate) {
        next = std::min(next, std::max(now_ns_, item.remaining_ns));
        continue;
      }
      if (const double share = share_of(stream, item); share > 0) next = std::min(next, now_ns_ + item.remaining_ns / share);
    } else if (item.ready_ns > now_ns_) {
      next = std::min(next, item.ready_ns);
    }
  }
  return next;
}

void GpuTimeline::end(Stream& stream, const Item& item) {
  stream.done_ns = now_ns_;
  stream.memory = 0;
  const Span span{item.start_ns, now_ns_};
  if (keeps_spans_) spans_[item.index] = span;
  if (told_) told_(item.index, span);
  stream.pop();
}

double GpuTimeline::next_ns() {
  begin_what_can();
  share_engines();
  return next_moment();
}

void GpuTimeline::go_to(double ns) {
  const double before_ns = now_ns_;
  now_ns_ = std::max(now_ns_, ns);
  for (const uint32_t number : active_) {
    Stream& stream = streams_[number];
    Item& item = stream.items[stream.next];
    if (!item.started) continue;
    if (item.kind == ItemKind::gate) {
      if (item.remaining_ns <= now_ns_) end(stream, item);
      continue;
    }
    const double share = share_of(stream, item);
    if (share <= 0) continue;
    // The work that ends first must end now, even if its rest is too small to change the clock's floating point value.
    const bool ends = before_ns + item.remaining_ns / share <= ns;
    item.remaining_ns -= (ns - before_ns) * share;
    if (ends || item.remaining_ns <= kNothingNs) end(stream, item);
  }
}

void GpuTimeline::use_card(uint32_t stream, double multiprocessors, double memory) {
  Item& item = streams_[stream].items[streams_[stream].next];
  item.demand = std::max(item.demand, multiprocessors);
  streams_[stream].memory = memory;
}

void GpuTimeline::end_gate(uint32_t stream) { end(streams_[stream], streams_[stream].items[streams_[stream].next]); }

void GpuTimeline::end_gate_at(uint32_t stream, double ns) { streams_[stream].items[streams_[stream].next].remaining_ns = ns; }

// Goes to the next moment at which something begins or ends; false: there is none up to this time.
bool GpuTimeline::step(double until_ns) {
  if (active_.empty()) return false;
  share_engines();
  const double wanted = next_moment();
  if (wanted == kNever) return false;
  go_to(std::min(wanted, until_ns));
  return wanted <= until_ns;
}

}  // namespace gpucast
