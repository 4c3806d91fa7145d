#include "src/schedule/step_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpucast {
namespace {

constexpr double kUs = 1000;

// A step of kernels that keep the card busy for 100 us each. A launch costs the host 2.5 us and reaches the GPU after 4 us.
struct Case {
  StepOperations step;
  std::vector<Duration> durations;

  Case() {
    step.shapes = {Operation{}, Operation{}};
    step.shapes[1].kind = OperationKind::copy;
    step.shapes[1].from_host = true;
    for (Operation& shape : step.shapes) shape.launches = 1;
    durations = {{100 * kUs, 0, 0, Bound::memory, 80 * kUs}, {100 * kUs, 0, 0, Bound::link, 80 * kUs}};
    step.streams = {0, 7};
    step.events = 2;
  }
  void ask(uint32_t stream, int64_t asked_us, uint32_t shape = 0) {
    StepOperation operation;
    operation.shape = shape;
    operation.stream = stream;
    operation.asked_ns = asked_us * 1000;
    step.operations.push_back(operation);
  }
  void order(OrderKind kind, uint32_t stream, uint32_t event, uint32_t recorded_on, int64_t asked_us) {
    step.order.push_back({kind, stream, recorded_on, event, asked_us * 1000, step.operations.size()});
  }
  Schedule time(int64_t host_us) {
    step.host_ns = host_us * 1000;
    return schedule(step, durations, step_constants(), 1);
  }
};

TEST(Schedule, AStepLastsAsLongAsItsSlowerSide) {
  Case gpu;
  gpu.ask(0, 10);
  gpu.ask(0, 20);
  EXPECT_DOUBLE_EQ(gpu.time(50).step_ns, 200 * kUs);
  const Schedule host = gpu.time(500);
  EXPECT_DOUBLE_EQ(host.step_ns, 505 * kUs) << "and two launches";
  EXPECT_DOUBLE_EQ(host.gpu_ns, 200 * kUs);
  EXPECT_DOUBLE_EQ(host.host_ns, 505 * kUs);
}

TEST(Schedule, TheHostWaitsForAStream) {
  Case one;
  one.ask(0, 10);
  one.order(OrderKind::host_wait_stream, 0, 0, 0, 20);
  // 10 until the launch, 4 until it reaches the GPU, 100 there; then 30 on the host.
  EXPECT_DOUBLE_EQ(one.time(50).step_ns, 144 * kUs);
  EXPECT_DOUBLE_EQ(one.time(50).gpu_ns, 100 * kUs);
}

// The host needs 80 us for a batch while the GPU still has work. Where the host waits for the GPU in each step, their times add up.
TEST(Schedule, TheHostMakesABatchWhileTheGpuWorksUnlessItWaits) {
  Case one;
  one.step.host_ns = 10'000;
  one.step.batches = {{2'000, 0}};
  one.ask(0, 5);
  EXPECT_DOUBLE_EQ(schedule(one.step, one.durations, step_constants(), 1, nullptr, 80 * kUs).step_ns, 100 * kUs);
  EXPECT_DOUBLE_EQ(schedule(one.step, one.durations, step_constants(), 1, nullptr, 300 * kUs).step_ns, (300 + 10 + 2.5) * kUs)
      << "and a launch";
  one.order(OrderKind::host_wait_stream, 0, 0, 0, 10);
  const double alone = schedule(one.step, one.durations, step_constants(), 1).step_ns;
  EXPECT_NEAR(schedule(one.step, one.durations, step_constants(), 1, nullptr, 80 * kUs).step_ns, alone + 80 * kUs, 1);
}

TEST(Schedule, TheHostWaitsForAnEventAlone) {
  Case one;
  one.ask(0, 10);
  one.order(OrderKind::event_record, 0, 0, 0, 10);
  one.ask(0, 10);
  one.order(OrderKind::host_wait_event, 0, 0, 0, 10);
  const double behind_first = 10 + 4 + 100, rest = 90;  // the second kernel runs meanwhile
  EXPECT_DOUBLE_EQ(one.time(100).step_ns, (behind_first + rest) * kUs);
}

TEST(Schedule, ACopyOnAnotherStreamCostsNothingUnlessTheStepWaitsForIt) {
  Case beside;
  beside.ask(1, 0, 1);
  beside.ask(0, 0);
  beside.ask(0, 0);
  EXPECT_DOUBLE_EQ(beside.time(10).step_ns, 200 * kUs);
  Case waited;
  waited.ask(0, 0);
  waited.order(OrderKind::event_record, 0, 0, 0, 0);
  waited.order(OrderKind::stream_wait, 1, 0, 0, 0);
  waited.ask(1, 0, 1);
  waited.order(OrderKind::event_record, 1, 1, 0, 0);
  waited.order(OrderKind::stream_wait, 0, 1, 1, 0);
  waited.ask(0, 0);
  EXPECT_DOUBLE_EQ(waited.time(10).step_ns, 300 * kUs);
}

// A loader copies the next batch while this one is computed: the step waits for a copy of the step before.
TEST(Schedule, AnEventOfTheStepBefore) {
  Case prefetch;
  prefetch.order(OrderKind::stream_wait, 0, 0, 1, 0);
  prefetch.ask(0, 0);
  prefetch.ask(1, 0, 1);
  EXPECT_DOUBLE_EQ(prefetch.time(10).step_ns, 100 * kUs);
}

TEST(Schedule, AGraphIsOneLaunch) {
  Case graph;
  graph.order(OrderKind::graph_begin, 0, 0, 0, 0);
  for (int i = 0; i < 100; ++i) graph.ask(0, 0);
  graph.order(OrderKind::graph_end, 0, 0, 0, 0);
  graph.durations[0].expected_ns = kUs;
  const Schedule time = graph.time(1);
  EXPECT_DOUBLE_EQ(time.host_ns, 3.5 * kUs);
  EXPECT_DOUBLE_EQ(time.step_ns, 100 * kUs);
}

}  // namespace
}  // namespace gpucast
