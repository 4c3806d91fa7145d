#include "src/schedule/step_player.h"

#include <algorithm>

namespace gpucast {

Engine engine_of(const Operation& operation) {
  if (operation.kind == OperationKind::collective) return Engine::link;
  if (operation.kind != OperationKind::copy) return Engine::compute;
  if (operation.between_cards) return Engine::link;
  return operation.from_host ? Engine::to_device : operation.to_host ? Engine::to_host : Engine::compute;
}

double demand_of(const Duration& duration, Engine engine, const StepConstants& constants) {
  if (engine != Engine::compute || duration.expected_ns <= 0) return 1;
  return std::min(1.0, duration.ideal_ns / duration.expected_ns / constants.reached);
}

StepPlayer::StepPlayer(const StepOperations& step, const std::vector<Duration>& durations, const StepConstants& constants, const Host& host,
                       const std::vector<double>* held)
    : step_(step),
      constants_(constants),
      host_(host),
      held_(held),
      gpu_(step.streams.size()),
      event_(step.events),
      stream_before_(step.streams.size()),
      asked_(step.operations.size()) {
  for (size_t shape = 0; shape < step.shapes.size(); ++shape) {
    const Engine engine = engine_of(step.shapes[shape]);
    work_.push_back({.duration_ns = durations[shape].expected_ns,
                     .engine = engine,
                     .demand = demand_of(durations[shape], engine, constants),
                     .limited_by_memory = durations[shape].bound == Bound::memory});
  }
}

void StepPlayer::play_alone() {
  for (go_on(); waits(); go_on()) {
    switch (wait_) {
      case Wait::stream:
        gpu_.finish_stream(static_cast<uint32_t>(waited_));
        break;
      case Wait::event:
        gpu_.finish_event(waited_);
        break;
      default:
        gpu_.finish();
    }
  }
  gpu_.finish();
}

void StepPlayer::go_on() {
  if (waits()) end_wait();
  while (!waits() && pass_ < kPasses) next_request();
}

void StepPlayer::next_request() {
  const bool has_order = order_ < step_.order.size() && step_.order[order_].operations_before <= operation_;
  if (batch_ < step_.batches.size()) {
    const StepBatch& batch = step_.batches[batch_];
    const bool due =
        has_order ? batch.operations_before <= step_.order[order_].operations_before && batch.asked_ns <= step_.order[order_].asked_ns
                  : batch.operations_before <= operation_;
    if (due) {
      advance_host_to(batch.asked_ns);
      if (host_.costs) ns_ += host_.batch_ns;
      ++batch_;
      return;
    }
  }
  if (has_order) {
    follow_order(step_.order[order_++]);
  } else if (operation_ < step_.operations.size()) {
    launch(step_.operations[operation_++]);
  } else {
    end_pass();
  }
}

void StepPlayer::launch(const StepOperation& operation) {
  advance_host_to(operation.asked_ns);
  const double ready_ns = ns_ + (host_.costs ? constants_.latency_ns : 0);
  asked_[operation_ - 1] = {ns_, ready_ns, freed_ns_};
  if (held_ != nullptr && operation.communication >= 0) {
    gpu_.add_gate(operation.stream, ready_ns, (*held_)[operation.shape]);
  } else {
    gpu_.add_work(operation.stream, ready_ns, work_[operation.shape]);
  }
  if (!in_graph_) add_calls(step_.shapes[operation.shape].launches);
  if (operation.waits) wait_for(Wait::stream, operation.stream);
}

void StepPlayer::end_pass() {
  advance_host_to(step_.host_ns);
  if (step_.events > 0) {
    for (uint32_t stream = 0; stream < stream_before_.size(); ++stream) stream_before_[stream] = gpu_.record(stream, ns_);
  }
  if (++pass_ == kPasses) return;
  host_begin_ns_ = ns_;
  asked_ns_ = 0;
  calls_ns_ = 0;
  operation_ = order_ = batch_ = 0;
}

// Advances the host to its request at this time of the observed step.
void StepPlayer::advance_host_to(int64_t asked_ns) {
  const auto asked = static_cast<double>(asked_ns);
  if (host_.costs) ns_ += std::max(0.0, asked - asked_ns_) * host_.scale;
  asked_ns_ = std::max(asked_ns_, asked);
}

void StepPlayer::add_calls(int64_t launches) {
  if (host_.costs) ns_ += constants_.call_ns * static_cast<double>(launches);
  calls_ns_ += constants_.call_ns * static_cast<double>(launches);
}

void StepPlayer::wait_for(Wait kind, size_t index) {
  wait_ = kind;
  waited_ = index;
}

bool StepPlayer::can_go_on() const {
  switch (wait_) {
    case Wait::stream:
      return gpu_.pending(static_cast<uint32_t>(waited_)) == 0;
    case Wait::event:
      return gpu_.done(waited_);
    case Wait::device:
      return gpu_.idle();
    case Wait::none:
      return false;
  }
  return false;
}

void StepPlayer::end_wait() {
  double until_ns = 0;
  if (wait_ == Wait::stream) until_ns = gpu_.stream_ns(static_cast<uint32_t>(waited_));
  if (wait_ == Wait::event) until_ns = gpu_.event_ns(waited_);
  if (wait_ == Wait::device) {
    for (uint32_t stream = 0; stream < step_.streams.size(); ++stream) until_ns = std::max(until_ns, gpu_.stream_ns(stream));
  }
  wait_ = Wait::none;
  if (!host_.costs || until_ns <= ns_) return;
  ns_ = until_ns;
  freed_ns_ = until_ns;
}

// An event that this step does not record was recorded in the step before, at its end at the latest.
std::optional<GpuTimeline::EventId> StepPlayer::event_of(const StepOrder& order) const {
  return event_[order.event] ? event_[order.event] : stream_before_[order.recorded_on];
}

void StepPlayer::follow_order(const StepOrder& order) {
  advance_host_to(order.asked_ns);
  switch (order.kind) {
    case OrderKind::event_record:
      event_[order.event] = gpu_.record(order.stream, ns_);
      break;
    case OrderKind::stream_wait:
      if (const auto event = event_of(order)) gpu_.wait(order.stream, *event, ns_);
      break;
    case OrderKind::host_wait_event:
      if (const auto event = event_of(order)) wait_for(Wait::event, *event);
      break;
    case OrderKind::host_wait_stream:
      wait_for(Wait::stream, order.stream);
      break;
    case OrderKind::host_wait_device:
      wait_for(Wait::device, 0);
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

double StepPlayer::begin_ns() const {
  double out = host_begin_ns_;
  for (size_t work = 0; work < measured_work(); ++work) out = std::max(out, gpu_.span(work).end_ns);
  return out;
}

double StepPlayer::end_ns() const {
  double out = ns_;
  for (uint32_t stream = 0; stream < step_.streams.size(); ++stream) out = std::max(out, gpu_.stream_ns(stream));
  return out;
}

}  // namespace gpucast
