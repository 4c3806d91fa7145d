// When work on a GPU begins and ends: streams whose work runs in order, events between them, and engines that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpucast {

// What works for several streams at once. Copies between host and device, and between cards, go beside kernels.
enum class Engine : uint8_t { compute, to_device, to_host, link, count_ };

// Times in nanoseconds, from any one point. The host asks for work in the order of its own time, which never goes back; it may wait.
class GpuTimeline {
 public:
  struct Span {
    double start_ns = 0, end_ns = 0;
  };
  using EventId = size_t;

  explicit GpuTimeline(size_t streams) : streams_(streams) {}

  // `ready_ns`: not before. `demand`: the part of the engine that it keeps busy when it runs alone, where it takes `duration_ns`; engines
  // that more is asked of than they have slow all down alike. Returns the index of its Span.
  size_t add_work(uint32_t stream, double ready_ns, double duration_ns, Engine engine, double demand);
  // The event is there when all that was asked of the stream before is done.
  EventId record(uint32_t stream, double ready_ns);
  void wait(uint32_t stream, EventId event, double ready_ns);

  // When all that was asked of the stream is done; likewise for an event, for all streams. Nothing is decided about later times.
  double finish_stream(uint32_t stream);
  double finish_event(EventId event);
  double finish();

  // Of work that is done.
  const Span& span(size_t work) const { return spans_[work]; }

 private:
  enum class ItemKind : uint8_t { work, record, wait };
  struct Item {
    ItemKind kind;
    Engine engine;
    bool started;
    double ready_ns, remaining_ns, demand;
    size_t index;  // of the Span or the event
  };
  struct Stream {
    std::vector<Item> items;
    size_t next = 0;  // items before it are done
    double done_ns = 0;
    bool empty() const { return next == items.size(); }
    void pop() {
      if (++next < items.size()) return;
      items.clear();
      next = 0;
    }
  };

  template <class Done>
  void run_until(const Done& done);
  void begin_what_can();
  bool step();

  std::vector<Stream> streams_;
  std::vector<Span> spans_;
  std::vector<double> events_;  // when they came; below 0: not yet
  double now_ns_ = 0;
};

}  // namespace gpucast
