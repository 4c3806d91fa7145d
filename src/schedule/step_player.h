// A step on one card: its host goes through it several times, and its streams work. schedule() plays one alone, src/ranks several on one
// clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/schedule/step_constants.h"
#include "src/time/duration.h"
#include "src/time/gpu_timeline.h"
#include "src/work/step_operations.h"

namespace gpucast {

Engine engine_of(const Operation& operation);
// The part of its engine that an operation keeps busy. A kernel that reaches only a small part of the card's rates leaves room for other
// streams.
double demand_of(const Duration& duration, Engine engine, const StepConstants& constants);

class StepPlayer {
 public:
  static constexpr size_t kPasses = 2;  // through the step; the last one is measured

  struct Host {
    double scale = 1;
    bool costs = true;    // false: it launches everything at once
    double batch_ns = 0;  // for each batch that it gets from its loader
  };
  struct Asked {
    double launched_ns = 0;  // by the host
    double ready_ns = 0;     // when the operation reached the GPU
    double freed_ns = 0;     // when the host's last wait before it ended
  };

  // `held`: by shape, the multiprocessors that a collective holds (GpuTimeline::add_gate); operations with a communication are gates then.
  // nullptr: collectives are work like any other.
  StepPlayer(const StepOperations& step, const std::vector<Duration>& durations, const StepConstants& constants, const Host& host,
             const std::vector<double>* held = nullptr);

  // The host goes on until it waits for the card, or has gone through all steps. First call, or can_go_on().
  void go_on();
  bool can_go_on() const;
  bool waits() const { return wait_ != Wait::none; }
  bool done() const { return !waits() && pass_ == kPasses && gpu_.idle(); }
  void play_alone();

  GpuTimeline& gpu() { return gpu_; }
  const StepOperations& step() const { return step_; }

  // Once done(). The measured step follows another one that filled the queue: it lasts from the end of that one to its own end.
  double begin_ns() const;
  double end_ns() const;
  double calls_ns() const { return calls_ns_; }  // launches, in a step
  double host_end_ns() const { return ns_; }     // when the host was done
  double freed_ns() const { return freed_ns_; }  // when the host's last wait ended
  const GpuTimeline::Span& span(size_t operation) const { return gpu_.span(measured_work() + operation); }
  const Asked& asked(size_t operation) const { return asked_[operation]; }

 private:
  enum class Wait : uint8_t { none, stream, event, device };

  size_t measured_work() const { return (kPasses - 1) * step_.operations.size(); }  // the first of the measured step
  void next_request();
  void launch(const StepOperation& operation);
  void follow_order(const StepOrder& order);
  void end_pass();
  void advance_host_to(int64_t asked_ns);
  void add_calls(int64_t launches);
  void wait_for(Wait kind, size_t index);
  void end_wait();
  std::optional<GpuTimeline::EventId> event_of(const StepOrder& order) const;

  const StepOperations& step_;
  const StepConstants& constants_;
  const Host host_;
  const std::vector<double>* held_;
  GpuTimeline gpu_;
  std::vector<GpuTimeline::Work> work_;  // by shape
  std::vector<std::optional<GpuTimeline::EventId>> event_, stream_before_;
  std::vector<Asked> asked_;  // by operation, in the measured step
  double ns_ = 0, asked_ns_ = 0, calls_ns_ = 0, freed_ns_ = 0, host_begin_ns_ = 0;
  size_t pass_ = 0;
  size_t operation_ = 0, order_ = 0, batch_ = 0;  // the next ones
  bool in_graph_ = false;
  Wait wait_ = Wait::none;
  size_t waited_ = 0;  // the stream or event
};

}  // namespace gpucast
