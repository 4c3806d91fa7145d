#include "src/schedule/step_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpucast {
Engine engine_of(const Operation& operation) {
  if (operation.kind == OperationKind::collective) return Engine::link;
  if (operation.kind != OperationKind::copy) return Engine::compute;
  return operation.from_host ? Engine::to_device : operation.to_host ? Engine::to_host : Engine::compute;
}

double demand_of(const Duration& duration, Engine engine, const StepConstants& constants) {
  if (engine != Engine::compute || duration.expected_ns <= 0) return 1;
  return std::min(1.0, duration.ideal_ns / duration.expected_ns / constants.reached);
}

namespace {

// The host, which runs the step several times.
class Host {
 public:
  Host(const StepOperations& step, const std::vector<Duration>& durations, const StepConstants& constants, double scale, bool costs,
       double batch_ns = 0)
      : step_(step),
        constants_(constants),
        scale_(scale),
        costs_(costs),
        batch_ns_(batch_ns),
        gpu_(step.streams.size()),
        event_(step.events),
        stream_before_(step.streams.size()) {
    for (size_t shape = 0; shape < step.shapes.size(); ++shape) {
      const Engine engine = engine_of(step.shapes[shape]);
      work_.push_back({durations[shape].expected_ns, engine, demand_of(durations[shape], engine, constants), 0});
    }
  }

  void go_through_step() {
    asked_ns_ = 0;
    calls_ns_ = 0;
    first_work_ = next_work_;
    auto order = step_.order.begin();
    auto batch = step_.batches.begin();
    const auto batches_until = [&](size_t operations, int64_t asked_ns) {
      for (; batch != step_.batches.end() && batch->operations_before <= operations && batch->asked_ns <= asked_ns; ++batch) {
        advance_host_to(batch->asked_ns);
        if (costs_) ns_ += batch_ns_;
      }
    };
    const auto order_until = [&](size_t operations) {
      for (; order != step_.order.end() && order->operations_before <= operations; ++order) {
        batches_until(order->operations_before, order->asked_ns);
        follow_order(*order);
      }
      batches_until(operations, INT64_MAX);
    };
    for (size_t i = 0; i < step_.operations.size(); ++i) {
      order_until(i);
      const StepOperation& operation = step_.operations[i];
      advance_host_to(operation.asked_ns);
      next_work_ = 1 + gpu_.add_work(operation.stream, ns_ + (costs_ ? constants_.latency_ns : 0), work_[operation.shape]);
      if (!in_graph_) add_calls(step_.shapes[operation.shape].launches);
      if (operation.waits) wait_until(gpu_.finish_stream(operation.stream));
    }
    order_until(step_.operations.size());
    advance_host_to(step_.host_ns);
    if (step_.events == 0) return;
    for (uint32_t stream = 0; stream < stream_before_.size(); ++stream) stream_before_[stream] = gpu_.record(stream, ns_);
  }

  // When all launched work is done.
  double end_ns() { return std::max(ns_, gpu_.finish()); }
  double ns() const { return ns_; }
  double calls_ns() const { return calls_ns_; }
  size_t first_work() const { return first_work_; }
  size_t next_work() const { return next_work_; }
  const GpuTimeline::Span& span(size_t work) const { return gpu_.span(work); }

 private:
  // Advances the host to its request at this time of the observed step.
  void advance_host_to(int64_t asked_ns) {
    const auto asked = static_cast<double>(asked_ns);
    if (costs_) ns_ += std::max(0.0, asked - asked_ns_) * scale_;
    asked_ns_ = std::max(asked_ns_, asked);
  }
  void add_calls(int64_t launches) {
    if (costs_) ns_ += constants_.call_ns * static_cast<double>(launches);
    calls_ns_ += constants_.call_ns * static_cast<double>(launches);
  }
  void wait_until(double until_ns) {
    if (costs_) ns_ = std::max(ns_, until_ns);
  }

  // An event that this step does not record was recorded in the step before, at its end at the latest.
  std::optional<GpuTimeline::EventId> event_of(const StepOrder& order) const {
    return event_[order.event] ? event_[order.event] : stream_before_[order.recorded_on];
  }

  void follow_order(const StepOrder& order) {
    advance_host_to(order.asked_ns);
    switch (order.kind) {
      case OrderKind::event_record:
        event_[order.event] = gpu_.record(order.stream, ns_);
        break;
      case OrderKind::stream_wait:
        if (const auto event = event_of(order)) gpu_.wait(order.stream, *event, ns_);
        break;
      case OrderKind::host_wait_event:
        if (const auto event = event_of(order)) wait_until(gpu_.finish_event(*event));
        break;
      case OrderKind::host_wait_stream:
        wait_until(gpu_.finish_stream(order.stream));
        break;
      case OrderKind::host_wait_device:
        wait_until(gpu_.finish());
        break;
      case OrderKind::graph_begin:
        add_calls(1);
        in_graph_ = true;
        break;
      case OrderKind::graph_end:
        in_graph_ = false;
        break;
    }
  }

  const StepOperations& step_;
  const StepConstants& constants_;
  const double scale_;
  const bool costs_;
  const double batch_ns_;
  GpuTimeline gpu_;
  std::vector<GpuTimeline::Work> work_;  // by shape
  std::vector<std::optional<GpuTimeline::EventId>> event_, stream_before_;
  double ns_ = 0, asked_ns_ = 0, calls_ns_ = 0;
  bool in_graph_ = false;
  size_t first_work_ = 0, next_work_ = 0;
};

// From the end of a step to the end of the next one, which begins with a full queue.
double step_ns(Host* host, double* end_before) {
  host->go_through_step();
  const double asked_ns = host->ns();
  const size_t first = host->first_work(), next = host->next_work();
  host->go_through_step();
  const double end = host->end_ns();
  *end_before = asked_ns;
  for (size_t work = first; work < next; ++work) *end_before = std::max(*end_before, host->span(work).end_ns);
  return end - *end_before;
}

}  // namespace

Schedule schedule(const StepOperations& step, const std::vector<Duration>& durations, const StepConstants& constants, double host_scale,
                  std::vector<GpuTimeline::Span>* spans, double batch_ns) {
  Schedule out;
  double end_before = 0;
  if (step.streams.size() > 1) {
    Host alone(step, durations, constants, 0, false);
    out.gpu_ns = step_ns(&alone, &end_before);
  } else {
    for (const StepOperation& operation : step.operations) out.gpu_ns += durations[operation.shape].expected_ns;
  }
  Host host(step, durations, constants, host_scale, true, batch_ns);
  out.step_ns = step_ns(&host, &end_before);
  out.host_ns = static_cast<double>(step.host_ns) * host_scale + host.calls_ns();
  if (spans) {
    spans->clear();
    for (size_t work = host.first_work(); work < host.next_work(); ++work)
      spans->push_back({host.span(work).start_ns - end_before, host.span(work).end_ns - end_before});
  }
  return out;
}

double host_scale(const HostObservation& host, const StepConstants& constants) {
  if (host.observed_ns <= 0) return 1;
  double plain_ns = host.observed_ns;
  if (host.own_ns > 0) plain_ns = std::min(plain_ns, host.own_ns / (host.timed ? constants.timed_factor : constants.untimed_factor));
  if (host.other_ns > 0) plain_ns = std::min(plain_ns, host.other_ns);
  if (host.alone) plain_ns /= constants.untimed_factor;
  const double watching_ns = host.timed ? static_cast<double>(host.marks + host.allocations) * constants.watched_ns
                                        : static_cast<double>(host.marks) * constants.mark_ns;
  return std::clamp((plain_ns - watching_ns) / host.observed_ns, constants.least_share * plain_ns / host.observed_ns, 1.0);
}

TimeRange gpu_time_of_step(const StepOperations& step, const CardRates& rates) {
  const double ns = schedule(step, durations_of(step, rates), step_constants(), 1).gpu_ns;
  return {ns * rates.step_interval.low, ns, ns * rates.step_interval.high};
}

std::vector<Duration> durations_of(const StepOperations& step, const CardRates& rates) {
  std::vector<Duration> out;
  out.reserve(step.shapes.size());
  for (const Operation& shape : step.shapes) out.push_back(operation_duration(shape, rates));
  return out;
}

}  // namespace gpucast
