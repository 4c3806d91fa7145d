#include "src/vgpu/core/clock.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "src/vgpu/core/activities.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/host_speed.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {
namespace {

// Every kernel takes 1 ms, except "half", which uses half of the card, and "long". A test that compares times launches a long kernel first:
// the others are queued while it runs, however slow the machine is.
std::string answer(const std::string& question) {
  if (question.ends_with(" half")) return "1000000 0 0.5\n";
  if (question.ends_with(" long")) return "50000000 0 1\n";
  if (question.starts_with("copy 1 ")) return "2000000 1 1\n";
  if (question.starts_with("kernel")) return "1000000 0 1\n";
  return "what?\n";
}

class Clock : public testing::Test {
 protected:
  void SetUp() override { start_clock(ClockMode::warp, answer); }
  void TearDown() override { stop_clock(); }

  static void launch(const char* name, uint64_t stream = 0) {
    const unsigned grid[3] = {1, 1, 1}, block[3] = {32, 1, 1};
    log_kernel(name, grid, block, 0, stream);
  }
  static float elapsed_ms(uint64_t from, uint64_t to) {
    float out = -1;
    EXPECT_EQ(event_elapsed(from, to, &out), kSuccess);
    return out;
  }
  static double ahead_ms() { return static_cast<double>(gpucast_vgpu_time_ahead_ns()) / 1e6; }
};

TEST_F(Clock, EventsTellTheCardsTimeAndNobodyWaitsUnderWarp) {
  const uint64_t begin = event_create(0), end = event_create(0);
  const auto started = std::chrono::steady_clock::now();
  launch("long");
  event_record(begin, 0);
  for (int i = 0; i < 20; ++i) launch("kernel_of_a_millisecond");
  event_record(end, 0);
  EXPECT_EQ(event_query(end), kNotReady);
  float unused = 0;
  EXPECT_EQ(event_elapsed(begin, end, &unused), kNotReady);
  EXPECT_EQ(event_synchronize(end), kSuccess);
  EXPECT_EQ(event_query(end), kSuccess);
  EXPECT_NEAR(elapsed_ms(begin, end), 20, 0.2);
  EXPECT_NEAR(elapsed_ms(end, begin), -20, 0.2);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(2));
  EXPECT_GT(ahead_ms() + 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count(), 70);
  event_destroy(begin);
  event_destroy(end);
}

TEST_F(Clock, InRealTimeTheHostWaits) {
  start_clock(ClockMode::real_time, answer);
  const auto started = std::chrono::steady_clock::now();
  launch("long");
  EXPECT_EQ(device_synchronize(), kSuccess);
  EXPECT_GE(std::chrono::steady_clock::now() - started, std::chrono::milliseconds(49));
}

TEST_F(Clock, OurOwnWorkIsNotTheHosts) {
  const int64_t before = gpucast_vgpu_time_ahead_ns();
  gpucast_vgpu_was_interrupted(5'000'000);
  gpucast_vgpu_interruptions()[0] += 2'000'000;
  gpucast_vgpu_interruptions()[1] += 1'000'000;
  gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
  EXPECT_EQ(gpucast_vgpu_time_ahead_ns(), before - 8'000'000);
  start_clock(ClockMode::real_time, answer, 100'000);
  launch("half");
  EXPECT_EQ(gpucast_vgpu_time_ahead_ns(), 100'000);
  gpucast_vgpu_was_interrupted(1'000'000);
  launch("half");
  EXPECT_EQ(gpucast_vgpu_time_ahead_ns(), 100'000) << "the first call's cost is paid";
}

// The time that this thread has had the processor.
int64_t worked_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void work(int64_t ns) {
  for (const int64_t end = worked_ns() + ns; worked_ns() < end;) continue;
}

int64_t work_for(std::chrono::milliseconds time) {
  const int64_t begin = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) continue;
  return gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC) - begin;
}

TEST_F(Clock, UsualInterruptionsFollowTheMachinesSpeed) {
  const int64_t yardstick = yardstick_ns();
  start_clock(ClockMode::warp, answer, 0, yardstick);
  launch("half");
  const auto left_for_script_ns = [](int64_t usual_yardstick_ns) {
    const int64_t begin = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
    gpucast_vgpu_interruptions()[1] += 4'000'000;
    gpucast_vgpu_interruptions()[2] = usual_yardstick_ns;
    work(6'000'000);
    return gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC) - begin;
  };
  int64_t fast = 0, slow = 0;
  for (int i = 0; i < 8; ++i)  // in turn: this machine's speed changes
    fast += left_for_script_ns(2 * yardstick), slow += left_for_script_ns(yardstick / 2);
  gpucast_vgpu_interruptions()[2] = 0;
  EXPECT_GT(fast, slow) << "measured on a machine that was four times as slow, they are shorter now";
}

TEST_F(Clock, UsualInterruptionsLeaveTheScriptAPart) {
  start_clock(ClockMode::warp, answer, 0, yardstick_ns());
  launch("half");
  const int64_t begin = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
  gpucast_vgpu_interruptions()[1] += 50'000'000;
  work(6'000'000);
  EXPECT_GT(gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC) - begin, 200'000) << "time goes on";
}

TEST_F(Clock, WorkRunsAtTheSpeedOfACardsHost) {
  HostSpeed here;
  for (int i = 0; i < 9; ++i) here.add(yardstick_ns());
  const double yardstick = 1000 / here.share(1000);
  start_clock(ClockMode::warp, answer, 0, static_cast<int64_t>(yardstick / 5));  // a host that is 5 times as fast
  launch("half");
  EXPECT_LT(work_for(std::chrono::milliseconds(30)), 15'000'000);
  const int64_t begin = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_GT(gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC) - begin, 29'000'000) << "a sleep takes its time";
}

TEST_F(Clock, TimeInWhichOthersHadTheProcessorDoesNotCount) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  start_clock(ClockMode::warp, answer, 0, 1);  // the least share: the work hardly counts
  const pid_t other = fork();
  if (other == 0) {
    for (std::atomic<int> turns = 0;;) ++turns;
  }
  launch("half");
  const int64_t begin = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
  for (const int64_t end = worked_ns() + 60'000'000; worked_ns() < end;) gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
  const int64_t passed = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC) - begin;
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  sched_setaffinity(0, sizeof(before), &before);
  EXPECT_LT(passed, 30'000'000) << "the other process had the processor for 60 ms";
}

TEST_F(Clock, ItsClocksNeverGoBack) {
  start_clock(ClockMode::warp, answer, 0, 100);
  launch("half");
  int64_t last = 0;
  for (int i = 0; i < 100'000; ++i) {
    const int64_t now = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
    ASSERT_GE(now, last);
    last = now;
    if (i % 10'000 == 0) gpucast_vgpu_was_interrupted(100'000);  // an estimate: more than has passed
  }
}

TEST_F(Clock, OurOwnWorkDoesNotCountTwice) {
  start_clock(ClockMode::warp, answer, 0, 1);  // the least share
  launch("half");
  const int64_t begin = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC);
  const int64_t own = worked_ns();
  while (worked_ns() < own + 20'000'000) continue;
  gpucast_vgpu_was_interrupted(worked_ns() - own);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const int64_t passed = gpucast_vgpu_host_clock_ns(CLOCK_MONOTONIC) - begin;
  EXPECT_GT(passed, 24'000'000) << "counted twice, it is 12 ms";
}

TEST_F(Clock, StreamsShareTheCardAndWaitForEvents) {
  const uint64_t one = stream_create(1, 0), other = stream_create(1, 0);
  const uint64_t begin = event_create(0), end = event_create(0), between = event_create(0);
  launch("long", one);
  event_record(begin, one);
  stream_wait_event(other, begin);
  launch("half", one);
  launch("half", other);  // runs at the same time
  event_record(between, one);
  stream_wait_event(other, between);
  launch("kernel", other);
  event_record(end, other);
  EXPECT_EQ(stream_query(other), kNotReady);
  EXPECT_EQ(stream_synchronize(other), kSuccess);
  EXPECT_EQ(stream_query(one), kSuccess);
  EXPECT_NEAR(elapsed_ms(begin, end), 2, 0.2);
}

TEST_F(Clock, AGraphIsOneLaunchOfAllItsWork) {
  const uint64_t stream = stream_create(1, 0);
  ASSERT_EQ(capture_begin(stream, 0, 0), kSuccess);
  for (int i = 0; i < 5; ++i) launch("kernel", stream);
  uint64_t graph = 0, exec = 0;
  ASSERT_EQ(capture_end(stream, &graph), kSuccess);
  ASSERT_EQ(graph_instantiate(graph, &exec), kSuccess);
  const uint64_t begin = event_create(0), end = event_create(0);
  launch("long", stream);
  event_record(begin, stream);
  graph_launch(exec, stream);
  graph_launch(exec, stream);
  event_record(end, stream);
  EXPECT_EQ(event_synchronize(end), kSuccess);
  EXPECT_NEAR(elapsed_ms(begin, end), 10, 0.2);
}

TEST_F(Clock, TheDefaultStreamAndBlockingOnesWaitForEachOther) {
  const uint64_t blocking = stream_create(0, 0), other = stream_create(1, 0), begin = event_create(0), end = event_create(0);
  launch("long");
  event_record(begin, 0);
  stream_wait_event(other, begin);
  launch("half", blocking);
  launch("half", 0);
  launch("half", blocking);
  launch("half", other);
  event_record(end, 0);
  device_synchronize();
  EXPECT_NEAR(elapsed_ms(begin, end), 3, 0.2);
}

TEST_F(Clock, ALaunchWaitsWhereTheQueueIsFull) {
  const auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < 1500; ++i) launch("kernel");
  const double real_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count();
  EXPECT_GT(ahead_ms() + real_ms, 1500 - 1024 - 10) << "of 1 ms each, but 1024 are waited for";
  EXPECT_LT(ahead_ms(), 1500 - 900);
}

TEST(ClockCosts, EachLaunchCostsTheHostSomeTime) {
  start_clock(ClockMode::warp, answer, 1'000'000);
  const unsigned grid[3] = {1, 1, 1}, block[3] = {32, 1, 1};
  log_kernel("kernel", grid, block, 0, 0);
  const int64_t before = gpucast_vgpu_time_ahead_ns();
  for (int i = 0; i < 10; ++i) log_kernel("kernel", grid, block, 0, 0);
  EXPECT_EQ(gpucast_vgpu_time_ahead_ns() - before, 10'000'000);
  stop_clock();
}

TEST_F(Clock, AHostFunctionIsCalledWhenTheStreamComesToIt) {
  static std::atomic<int> g_called{0};
  g_called = 0;
  launch("long");
  call_host({[](void*) { ++g_called; }, nullptr}, 0);
  launch("long");
  EXPECT_EQ(g_called, 0);
  EXPECT_EQ(stream_query(0), kNotReady);
  EXPECT_EQ(device_synchronize(), kSuccess);
  EXPECT_EQ(g_called, 1);
  EXPECT_NEAR(ahead_ms(), 100, 60) << "some of it is real";
}

TEST_F(Clock, WhatNobodyCanTellTakesAFewMicroseconds) {
  log_call("cublas", "unheard_of", "{}", 0);
  const double before = ahead_ms();
  device_synchronize();
  EXPECT_LT(ahead_ms() - before, 0.1);
}

TEST_F(Clock, AProfilerSeesWhichGraphItsWorkBelongsTo) {
  const uint64_t stream = stream_create(1, 0);
  ASSERT_EQ(capture_begin(stream, 0, 0), kSuccess);
  launch("kernel", stream);
  uint64_t graph = 0, exec = 0;
  ASSERT_EQ(capture_end(stream, &graph), kSuccess);
  ASSERT_EQ(graph_instantiate(graph, &exec), kSuccess);
  record_activities(true, nullptr);
  launch("kernel");
  graph_launch(exec, 0);  // on the default stream, whose handle is 0
  device_synchronize();
  const std::vector<Activity> activities = take_activities();
  record_activities(false, nullptr);
  std::vector<uint64_t> graphs;
  for (const Activity& activity : activities)
    if (activity.kind == ActivityKind::kernel) graphs.push_back(activity.graph);
  EXPECT_EQ(graphs, (std::vector<uint64_t>{0, exec}));
}

std::vector<uint32_t> g_calls;

TEST_F(Clock, AProfilerIsToldOfEachPieceOfWorkAndItsCall) {
  g_calls.clear();
  record_activities(true, [](uint32_t correlation) { g_calls.push_back(correlation); });
  launch("kernel");
  copy(reinterpret_cast<void*>(this), reinterpret_cast<const void*>(this), 0, 0, 0);  // copies nothing
  launch("half");
  EXPECT_EQ(take_activities().size(), 2U) << "the calls; no work is over";
  device_synchronize();
  const std::vector<Activity> told = take_activities();
  record_activities(false, nullptr);
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0].kind, ActivityKind::kernel);
  EXPECT_STREQ(told[0].name, "kernel");
  EXPECT_EQ(told[0].correlation, g_calls[0]);
  EXPECT_EQ(told[0].stream, 7U);
  EXPECT_EQ(told[0].block[0], 32U);
  EXPECT_NEAR(static_cast<double>(told[0].end_ns - told[0].start_ns), 1e6, 2);
  EXPECT_GE(told[1].start_ns, told[0].end_ns);
  EXPECT_EQ(told[2].kind, ActivityKind::wait);
  EXPECT_STREQ(told[2].name, "cudaDeviceSynchronize");
  EXPECT_GE(told[2].end_ns, told[1].end_ns);
}

}  // namespace
}  // namespace gpucast::vgpu
