// Steps of ranks made by hand, for tests and benchmarks. Nothing costs the host any time unless asked_us says so.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "src/ranks/play.h"

namespace gpucast {

inline constexpr double kUsNs = 1000;

// Stream 0 computes, the others communicate.
class HandMadeRank {
 public:
  int64_t asked_us = 0;  // of the next requests

  explicit HandMadeRank(int64_t number, size_t streams = 3) {
    played_.rank = number;
    for (size_t i = 0; i < streams; ++i) step_.streams.push_back(i);
  }

  uint32_t group(const std::string& name, std::vector<int64_t> ranks) {
    step_.groups.push_back({name, std::move(ranks), false});
    return static_cast<uint32_t>(step_.groups.size() - 1);
  }
  size_t compute(double us, uint32_t stream = 0) {
    Operation shape;
    shape.launches = 1;
    return add(shape, us, {}, stream, -1);
  }
  size_t collective(uint32_t group, double us, uint32_t stream = 1, CollectiveKind kind = CollectiveKind::all_reduce, int64_t bytes = 1000,
                    CollectiveUse use = {}, int64_t nodes = 1) {
    return communicate(group, {}, {kind, static_cast<int64_t>(step_.groups[group].ranks.size()), nodes, bytes, 1}, us, use, stream);
  }
  size_t messages(uint32_t group, const std::vector<Message>& list, double us, uint32_t stream = 1, CollectiveUse use = {}) {
    return communicate(group, list, {CollectiveKind::messages, 2, 1, list.front().bytes, 1}, us, use, stream);
  }
  struct Event {
    uint32_t number = 0, stream = 0;
  };
  Event record(uint32_t stream) {
    const Event event{static_cast<uint32_t>(step_.events++), stream};
    order(OrderKind::event_record, stream, event.number, stream);
    return event;
  }
  void wait(uint32_t stream, Event event) { order(OrderKind::stream_wait, stream, event.number, event.stream); }
  // The stream's later work begins after all earlier work of the other one.
  void after(uint32_t stream, uint32_t other) { wait(stream, record(other)); }
  void host_waits(uint32_t stream) { order(OrderKind::host_wait_stream, stream, 0, 0); }
  // Communication as PyTorch starts it: after what was computed before.
  size_t all_reduce_after_compute(uint32_t group, double us, CollectiveUse use = {}) {
    after(1, 0);
    return collective(group, us, 1, CollectiveKind::all_reduce, 1000, use);
  }

  StepOperations& step() { return step_; }
  // Valid as long as this rank lives and gets no more work.
  PlayedRank played(int64_t host_us = 0) {
    step_.host_ns = std::max(step_.host_ns, host_us * 1000);
    played_.step = &step_;
    return played_;
  }

 private:
  size_t add(const Operation& shape, double us, CollectiveUse use, uint32_t stream, int32_t communication) {
    StepOperation operation;
    operation.shape = shape_of(shape, us * 1000, use);
    operation.stream = stream;
    operation.asked_ns = asked_us * 1000;
    operation.communication = communication;
    step_.operations.push_back(operation);
    return step_.operations.size() - 1;
  }
  uint32_t shape_of(const Operation& shape, double ns, CollectiveUse use) {
    for (size_t i = 0; i < step_.shapes.size(); ++i) {
      const CollectiveUse& other = played_.uses[i];
      if (step_.shapes[i] == shape && played_.durations[i].expected_ns == ns && other == use) return static_cast<uint32_t>(i);
    }
    step_.shapes.push_back(shape);
    played_.durations.push_back({ns, ns, ns, Bound::compute, ns});
    played_.uses.push_back(use);
    return static_cast<uint32_t>(step_.shapes.size() - 1);
  }
  size_t communicate(uint32_t group, const std::vector<Message>& list, const CollectiveShape& collective, double us, CollectiveUse use,
                     uint32_t stream) {
    Operation shape;
    shape.kind = OperationKind::collective;
    shape.collective = collective;
    step_.communications.push_back({group, list});
    return add(shape, us, use, stream, static_cast<int32_t>(step_.communications.size() - 1));
  }
  void order(OrderKind kind, uint32_t stream, uint32_t event, uint32_t recorded_on) {
    step_.order.push_back({kind, stream, recorded_on, event, asked_us * 1000, step_.operations.size()});
  }

  StepOperations step_;
  PlayedRank played_;
};

// The host's time is as asked, and a kernel that runs alone keeps the card busy.
inline StepConstants free_host() {
  StepConstants out = step_constants();
  out.call_ns = out.latency_ns = 0;
  out.reached = 1;
  return out;
}

inline JobTime play_free(std::initializer_list<PlayedRank> ranks) { return play(ranks, free_host()); }

}  // namespace gpucast
