#include "src/time/gpu_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace gpucast {
namespace {

constexpr Engine kCompute = Engine::compute;

TEST(GpuTimeline, AStreamsWorkRunsInOrderAndNotBeforeItWasAskedFor) {
  GpuTimeline gpu(1);
  const size_t first = gpu.add_work(0, 10, {100, kCompute, 1}), second = gpu.add_work(0, 20, {50, kCompute, 1}),
               third = gpu.add_work(0, 300, {5, kCompute, 1});
  EXPECT_DOUBLE_EQ(gpu.finish(), 305);
  EXPECT_DOUBLE_EQ(gpu.span(first).start_ns, 10);
  EXPECT_DOUBLE_EQ(gpu.span(second).start_ns, 110);
  EXPECT_DOUBLE_EQ(gpu.span(second).end_ns, 160);
  EXPECT_DOUBLE_EQ(gpu.span(third).start_ns, 300);
}

TEST(GpuTimeline, TwoStreamsShareTheCard) {
  GpuTimeline gpu(2);
  const size_t one = gpu.add_work(0, 0, {100, kCompute, 1}), other = gpu.add_work(1, 0, {50, kCompute, 1});
  EXPECT_DOUBLE_EQ(gpu.finish(), 150) << "the time of both together";
  EXPECT_DOUBLE_EQ(gpu.span(other).end_ns, 100) << "at half its rate";
  EXPECT_DOUBLE_EQ(gpu.span(one).end_ns, 150);
}

TEST(GpuTimeline, SmallKernelsRunAtTheSameTime) {
  GpuTimeline gpu(2);
  gpu.add_work(0, 0, {100, kCompute, 0.5});
  gpu.add_work(1, 0, {100, kCompute, 0.5});
  EXPECT_DOUBLE_EQ(gpu.finish(), 100);
  GpuTimeline three(3);
  for (uint32_t stream = 0; stream < 3; ++stream) three.add_work(stream, 0, {100, kCompute, 0.5});
  EXPECT_DOUBLE_EQ(three.finish(), 150) << "one card has work for one and a half";
}

TEST(GpuTimeline, WorkAfterAFillOfL2ReadsFromMemory) {
  GpuTimeline gpu(1);
  const GpuTimeline::Work fill{.duration_ns = 1000, .sweeps_l2 = true}, kernel{.duration_ns = 100, .cold_ns = 30},
      event{.duration_ns = 5, .demand = 0};
  const size_t warm = gpu.add_work(0, 0, kernel);
  gpu.add_work(0, 0, fill);
  gpu.add_work(0, 0, event);
  const size_t cold = gpu.add_work(0, 0, kernel), again = gpu.add_work(0, 0, kernel);
  EXPECT_DOUBLE_EQ(gpu.finish(), 100 + 1000 + 5 + 130 + 100);
  const auto length = [&](size_t work) { return gpu.span(work).end_ns - gpu.span(work).start_ns; };
  EXPECT_DOUBLE_EQ(length(warm), 100);
  EXPECT_DOUBLE_EQ(length(cold), 130) << "the event between is not the card's work";
  EXPECT_DOUBLE_EQ(length(again), 100);
}

TEST(GpuTimeline, CopiesRunAtTheSameTimeAsKernels) {
  GpuTimeline gpu(3);
  gpu.add_work(0, 0, {100, kCompute, 1});
  gpu.add_work(1, 0, {100, Engine::to_device, 1});
  gpu.add_work(2, 0, {100, Engine::to_host, 1});
  EXPECT_DOUBLE_EQ(gpu.finish(), 100);
}

TEST(GpuTimeline, AStreamWaitsForAnEventOfAnother) {
  GpuTimeline gpu(2);
  gpu.add_work(0, 0, {100, kCompute, 1});
  const auto event = gpu.record(0, 0);
  gpu.add_work(0, 0, {30, kCompute, 1});
  gpu.wait(1, event, 0);
  const size_t behind = gpu.add_work(1, 0, {10, kCompute, 1});
  EXPECT_DOUBLE_EQ(gpu.finish_event(event), 100);
  EXPECT_DOUBLE_EQ(gpu.finish(), 140);
  EXPECT_DOUBLE_EQ(gpu.span(behind).start_ns, 100);
  EXPECT_DOUBLE_EQ(gpu.span(behind).end_ns, 120);
}

TEST(GpuTimeline, WhenTheHostWaitsLaterTimesStayOpen) {
  GpuTimeline gpu(2);
  gpu.add_work(0, 0, {100, kCompute, 1});
  const size_t longer = gpu.add_work(1, 0, {1000, Engine::to_device, 1});
  const double waited = gpu.finish_stream(0);
  EXPECT_DOUBLE_EQ(waited, 100);
  gpu.add_work(0, waited + 1, {100, Engine::to_device, 1});  // the host went on and adds work for the same engine
  EXPECT_DOUBLE_EQ(gpu.finish_stream(0), 301) << "both at half their rate from 101 on";
  EXPECT_DOUBLE_EQ(gpu.finish(), 1100);
  EXPECT_DOUBLE_EQ(gpu.span(longer).end_ns, 1100);
}

TEST(GpuTimeline, AnEventOfAnEmptyStreamIsThereAtOnce) {
  GpuTimeline gpu(2);
  const auto event = gpu.record(0, 7);
  EXPECT_DOUBLE_EQ(gpu.finish_event(event), 7);
  gpu.wait(1, event, 8);
  EXPECT_DOUBLE_EQ(gpu.finish(), 8);
}

TEST(GpuTimeline, EndsWhereTimesAreTooLargeToAddUp) {
  GpuTimeline gpu(2);
  gpu.add_work(0, 0, {1e30, kCompute, 1});
  gpu.add_work(0, 0, {1, kCompute, 1});
  gpu.add_work(1, 0, {2, kCompute, 1});
  EXPECT_GE(gpu.finish(), 1e30);
}

TEST(GpuTimeline, AStreamOfHigherPriorityGoesFirst) {
  GpuTimeline gpu;
  const uint32_t low = gpu.add_stream(0), high = gpu.add_stream(-5);
  const size_t first = gpu.add_work(low, 0, {100, kCompute, 1}), urgent = gpu.add_work(high, 20, {50, kCompute, 1}),
               half = gpu.add_work(high, 20, {50, kCompute, 0.5});
  EXPECT_DOUBLE_EQ(gpu.finish(), 175);
  EXPECT_DOUBLE_EQ(gpu.span(urgent).end_ns, 70);
  EXPECT_DOUBLE_EQ(gpu.span(half).end_ns, 120) << "with the whole of what it asks for";
  EXPECT_DOUBLE_EQ(gpu.span(first).end_ns, 175) << "20 alone, none for 50, half for 50, 55 alone";
}

TEST(GpuTimeline, CardsDoNotShareEngines) {
  GpuTimeline gpu(2);
  gpu.add_work(0, 0, {100, kCompute, 1, 0});
  gpu.add_work(1, 0, {100, kCompute, 1, 1});
  EXPECT_DOUBLE_EQ(gpu.finish(), 100);
}

TEST(GpuTimeline, AdvancesOnlyToTheGivenTime) {
  GpuTimeline gpu(2, false);
  std::vector<double> ends;
  gpu.on_done([&](size_t, const GpuTimeline::Span& span) { ends.push_back(span.end_ns); });
  for (int i = 0; i < 3; ++i) gpu.add_work(0, 0, {100, kCompute, 1});
  const auto event = gpu.record(0, 0);
  gpu.advance(150);
  EXPECT_EQ(ends, std::vector<double>{100});
  EXPECT_EQ(gpu.pending(0), 3U);
  EXPECT_DOUBLE_EQ(gpu.when_pending(0, 2), 200);
  EXPECT_DOUBLE_EQ(gpu.when_done(event), 300);
  EXPECT_FALSE(gpu.done(event)) << "looking ahead decides nothing";
  gpu.add_work(1, 150, {100, kCompute, 1});  // from now on both have half
  EXPECT_DOUBLE_EQ(gpu.when_done(event), 400);
  gpu.advance(140);
  gpu.advance(1000);
  EXPECT_EQ(ends, (std::vector<double>{100, 250, 350, 400}));
  EXPECT_DOUBLE_EQ(gpu.event_ns(event), 400);
}

TEST(GpuTimeline, AGateHoldsItsPartOfTheCardUntilTheCallerEndsIt) {
  GpuTimeline gpu(2);
  gpu.add_gate(1, 20, 0.5);
  gpu.add_work(1, 0, {10, kCompute, 1});
  const size_t beside = gpu.add_work(0, 0, {100, kCompute, 1});
  EXPECT_DOUBLE_EQ(gpu.next_ns(), 20);
  EXPECT_TRUE(gpu.take_reached().empty());
  gpu.go_to(20);
  EXPECT_DOUBLE_EQ(gpu.next_ns(), 180) << "the other 80 at half their rate";
  const auto reached = gpu.take_reached();
  ASSERT_EQ(reached.size(), 1U);
  EXPECT_EQ(reached[0].stream, 1U);
  gpu.use_card(1, 0, 0.9);
  EXPECT_DOUBLE_EQ(gpu.next_ns(), 180) << "memory does not limit the kernel";
  gpu.go_to(100);
  gpu.end_gate(1);
  EXPECT_DOUBLE_EQ(gpu.span(reached[0].work).end_ns, 100);
  EXPECT_DOUBLE_EQ(gpu.finish(), 150) << "40 are left, and the work after the gate";
  EXPECT_DOUBLE_EQ(gpu.span(beside).end_ns, 150);
}

TEST(GpuTimeline, NumbersOfReleasedEventsAreUsedAgain) {
  GpuTimeline gpu(2, false);
  for (int i = 0; i < 10'000; ++i) {
    const auto event = gpu.record(0, i);
    gpu.wait(1, event, i);
    gpu.release(event);
    gpu.advance(i);
    EXPECT_LT(event, 3U);
  }
}

// For random work: no engine gives more than it has, streams run in order, and an engine is never idle while work could run.
TEST(GpuTimeline, RandomWorkKeepsTheCardBusyAndInOrder) {
  std::mt19937 random(7);
  const auto number = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int round = 0; round < 200; ++round) {
    GpuTimeline gpu(3);
    std::vector<std::vector<size_t>> of_stream(3);
    std::vector<GpuTimeline::EventId> events;
    double total = 0, longest = 0, host = 0;
    for (int i = 0; i < 40; ++i) {
      const auto stream = static_cast<uint32_t>(number(3));
      host += number(3);
      if (number(4) == 0) events.push_back(gpu.record(stream, host));
      if (number(4) == 0 && !events.empty()) gpu.wait(stream, events[static_cast<size_t>(number(static_cast<int>(events.size())))], host);
      if (number(10) == 0) host = std::max(host, gpu.finish_stream(stream));
      const double ns = number(50);
      of_stream[stream].push_back(gpu.add_work(stream, host, {ns, kCompute, 1}));
      total += ns;
      longest = std::max(longest, ns);
    }
    const double end = gpu.finish();
    EXPECT_GE(end, total - 1e-3);
    EXPECT_LE(end, total + host + 1e-3);
    for (const auto& stream : of_stream) {
      for (size_t i = 1; i < stream.size(); ++i) EXPECT_GE(gpu.span(stream[i]).start_ns, gpu.span(stream[i - 1]).end_ns - 1e-6);
    }
  }
}

}  // namespace
}  // namespace gpucast
