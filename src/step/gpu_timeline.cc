#include "src/step/gpu_timeline.h"

#include <algorithm>
#include <array>
#include <limits>

namespace gpucast {
namespace {

constexpr double kNothingNs = 0.01;  // less is left of work that is done: sums of floating point

}  // namespace

size_t GpuTimeline::add_work(uint32_t stream, double ready_ns, double duration_ns, Engine engine, double demand) {
  streams_[stream].items.push_back({ItemKind::work, engine, false, ready_ns, duration_ns, demand, spans_.size()});
  spans_.push_back({});
  return spans_.size() - 1;
}

GpuTimeline::EventId GpuTimeline::record(uint32_t stream, double ready_ns) {
  streams_[stream].items.push_back({ItemKind::record, Engine::compute, false, ready_ns, 0, 0, events_.size()});
  events_.push_back(-1);
  return events_.size() - 1;
}

void GpuTimeline::wait(uint32_t stream, EventId event, double ready_ns) {
  streams_[stream].items.push_back({ItemKind::wait, Engine::compute, false, ready_ns, 0, 0, event});
}

template <class Done>
void GpuTimeline::run_until(const Done& done) {
  begin_what_can();
  while (!done() && step()) begin_what_can();
}

double GpuTimeline::finish_stream(uint32_t stream) {
  run_until([&] { return streams_[stream].empty(); });
  return streams_[stream].done_ns;
}

double GpuTimeline::finish_event(EventId event) {
  run_until([&] { return events_[event] >= 0; });
  return events_[event];
}

double GpuTimeline::finish() {
  run_until([&] { return std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.empty(); }); });
  double out = 0;
  for (const Stream& stream : streams_) out = std::max(out, stream.done_ns);
  return out;
}

// What needs no time happens now, and the first work of each stream begins.
void GpuTimeline::begin_what_can() {
  for (bool more = true; more;) {
    more = false;
    for (Stream& stream : streams_) {
      while (!stream.empty() && stream.items[stream.next].ready_ns <= now_ns_) {
        Item& item = stream.items[stream.next];
        if (item.kind == ItemKind::work) {
          if (!item.started) spans_[item.index].start_ns = now_ns_;
          item.started = true;
          break;
        }
        if (item.kind == ItemKind::wait && events_[item.index] < 0) break;
        if (item.kind == ItemKind::record) {
          events_[item.index] = now_ns_;
          more = true;  // another stream may wait for it
        }
        stream.done_ns = now_ns_;
        stream.pop();
      }
    }
  }
}

// To the next moment at which something begins or ends; false: there is none.
bool GpuTimeline::step() {
  std::array<double, static_cast<size_t>(Engine::count_)> asked{};
  for (const Stream& stream : streams_) {
    if (!stream.empty() && stream.items[stream.next].started)
      asked[static_cast<size_t>(stream.items[stream.next].engine)] += stream.items[stream.next].demand;
  }
  const auto slower = [&](const Item& item) { return std::max(1.0, asked[static_cast<size_t>(item.engine)]); };
  double next = std::numeric_limits<double>::infinity();
  for (const Stream& stream : streams_) {
    if (stream.empty()) continue;
    const Item& item = stream.items[stream.next];
    if (item.started) {
      next = std::min(next, now_ns_ + item.remaining_ns * slower(item));
    } else if (item.ready_ns > now_ns_) {
      next = std::min(next, item.ready_ns);
    }
  }
  if (next == std::numeric_limits<double>::infinity()) return false;
  for (Stream& stream : streams_) {
    if (stream.empty() || !stream.items[stream.next].started) continue;
    Item& item = stream.items[stream.next];
    // What ends first does end, however small what is left of it beside the time that it is.
    const bool ends = now_ns_ + item.remaining_ns * slower(item) <= next;
    item.remaining_ns -= (next - now_ns_) / slower(item);
    if (!ends && item.remaining_ns > kNothingNs) continue;
    spans_[item.index].end_ns = stream.done_ns = next;
    stream.pop();
  }
  now_ns_ = next;
  return true;
}

}  // namespace gpucast
