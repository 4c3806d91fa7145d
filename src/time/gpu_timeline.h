// When work on GPUs begins and ends. The work of a stream runs in order, events connect streams, and streams share engines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace gpucast {

// A part of the card that several streams share. Copies between host and device, and between cards, run at the same time as kernels.
enum class Engine : uint8_t { compute, to_device, to_host, link, count_ };

// Times in nanoseconds, from any one point. The host asks for work in the order of its own time, which never goes back; it may wait.
class GpuTimeline {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  struct Span {
    double start_ns = 0, end_ns = 0;
  };
  struct Work {
    double duration_ns = 0;  // when it runs alone
    Engine engine = Engine::compute;
    double demand = 1;   // the part of the engine that it keeps busy when alone; 0: the stream is busy, the engine is not; above 1 in all,
                         // work of one priority slows down alike
    size_t card = 0;     // each card has its own engines
    double cold_ns = 0;  // how much longer it takes right after work that sweeps L2
    bool sweeps_l2 = false;
    bool limited_by_memory = false;  // its rate, by the memory's bandwidth; else by multiprocessors
  };
  using EventId = size_t;
  struct Gate {
    uint32_t stream = 0;
    size_t work = 0;
    double at_ns = 0;
  };

  // `keeps_spans`: span() works. Without it only on_done() reports spans, and finished work needs no memory.
  explicit GpuTimeline(size_t streams = 0, bool keeps_spans = true) : streams_(streams), keeps_spans_(keeps_spans) {}

  // Among streams that share an engine, those with the lowest number go first, as in CUDA: 0 is the last priority, -5 the first.
  uint32_t add_stream(int priority);

  // The work does not begin before `ready_ns`. Returns its number: 0, 1, ...
  size_t add_work(uint32_t stream, double ready_ns, const Work& work);
  // Work whose end the caller decides: a collective, which waits for other cards. From its start to its end it holds this part of the
  // card's multiprocessors (below 1), and work that they limit gets the rest.
  size_t add_gate(uint32_t stream, double ready_ns, double multiprocessors, size_t card = 0);
  // The event is complete when all earlier work of the stream is done.
  EventId record(uint32_t stream, double ready_ns);
  void wait(uint32_t stream, EventId event, double ready_ns);
  // The caller will not name the event again.
  void release(EventId event);

  // The time at which all requested work of the stream is done; likewise for an event, and for all streams. The simulation goes no further
  // than this time.
  double finish_stream(uint32_t stream);
  double finish_event(EventId event);
  double finish();
  // Simulates up to this time.
  void advance(double until_ns);

  // Several timelines on one clock: the caller goes from moment to moment. next_ns() begins what can begin, and returns the next time at
  // which something begins or ends on this card, or kNever; go_to() a time that is not later.
  double next_ns();
  void go_to(double ns);
  double now_ns() const { return now_ns_; }
  // Gates that began since the last call.
  std::vector<Gate> take_reached() { return std::exchange(reached_, {}); }
  // The stream's first work is a gate. From now on it holds these parts of the card.
  void use_card(uint32_t stream, double multiprocessors, double memory);
  // The stream's first work is a gate, and ends now; or at this time.
  void end_gate(uint32_t stream);
  void end_gate_at(uint32_t stream, double ns);

  // How many works and events of the stream are not done.
  size_t pending(uint32_t stream) const { return streams_[stream].items.size() - streams_[stream].next; }
  bool done(EventId event) const { return events_[event].at_ns >= 0; }
  double event_ns(EventId event) const { return events_[event].at_ns; }         // below 0: not yet
  double stream_ns(uint32_t stream) const { return streams_[stream].done_ns; }  // when its last work that is done ended
  bool idle() const { return active_.empty(); }
  // The time at which at most `most` are pending, if no more work is added. kNever: a gate whose end is not known comes before.
  double when_pending(uint32_t stream, size_t most) const;
  double when_done(EventId event) const;
  double when_all_done() const;
  // The time at which the next gate begins. kNever: none does.
  double when_reached() const;

  // Only for work that is done.
  const Span& span(size_t work) const { return spans_[work]; }
  void on_done(std::function<void(size_t work, const Span& span)> told) { told_ = std::move(told); }

 private:
  static constexpr size_t kEngines = static_cast<size_t>(Engine::count_);
  static constexpr size_t kPriorities = 6;

  enum class ItemKind : uint8_t { work, gate, record, wait };
  struct Item {
    ItemKind kind;
    bool started;
    bool sweeps_l2, limited_by_memory;
    uint16_t engine;  // among the engines of all cards
    // Of a gate: remaining_ns is its end, or kNever; demand is the multiprocessors that it holds.
    double ready_ns, remaining_ns, demand, start_ns, cold_ns;
    size_t index;  // of the work or the event
  };
  struct Stream {
    std::vector<Item> items;
    size_t next = 0;      // items before it are done
    size_t priority = 0;  // 0 goes first
    double done_ns = 0;
    double memory = 0;  // that its gate uses
    bool empty() const { return next == items.size(); }
    void pop();
  };
  struct Event {
    double at_ns = -1;  // below 0: not yet
    uint32_t users = 0;
  };

  GpuTimeline ahead() const;
  void push(uint32_t stream, const Item& item);
  size_t push_work(uint32_t stream, const Item& item);
  void drop(EventId event);
  template <class Done>
  void run_until(const Done& done);
  void begin(uint32_t stream, Item& item);
  void end(Stream& stream, const Item& item);
  void begin_what_can();
  void share_engines();
  double share_of(const Stream& stream, const Item& item) const { return shares_[item.engine][item.limited_by_memory][stream.priority]; }
  double next_moment();
  bool step(double until_ns);

  std::vector<Stream> streams_;
  std::vector<uint32_t> active_;  // streams with something pending
  bool keeps_spans_;
  size_t works_ = 0;
  std::vector<Span> spans_;
  std::vector<Event> events_;
  std::vector<EventId> free_events_;
  using Shares = std::array<double, kPriorities>;  // by priority: the rate of the work that runs there
  std::vector<std::array<Shares, 2>> shares_;      // by engine of all cards, and limited_by_memory
  std::vector<std::array<double, 2>> left_;        // likewise: what gates leave
  std::vector<Gate> reached_;
  std::vector<bool> swept_;  // by engine: the last work that began there sweeps L2
  std::function<void(size_t, const Span&)> told_;
  double now_ns_ = 0;
};

}  // namespace gpucast
