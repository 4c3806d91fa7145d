#include "src/vgpu/core/operator_launches.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "src/vgpu/core/activities.h"
#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/running_operators.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {
namespace {

using std::string_literals::operator""s;

std::vector<std::string> g_questions;

// An operator takes 4 ms; "aten::host" has nothing on the card. A kernel outside of operators takes 1 ms, a call 2 ms.
std::string operator_answer(const std::string& question) {
  g_questions.push_back(question);
  if (question.starts_with("operator aten::host")) return "none\n";
  if (question.starts_with("operator")) return "4000000 0 1\n";
  if (question.starts_with("kernel") || question.starts_with("rest")) return "1000000 0 1\n";
  return "2000000 0 1\n";
}

class OperatorLaunches : public testing::Test {
 protected:
  void SetUp() override {
    g_questions.clear();
    start_clock(ClockMode::warp, operator_answer);
    begin_ = event_create(0);
    end_ = event_create(0);
    // The host is far ahead of the card, however slow the machine is.
    for (int i = 0; i < 50; ++i) launch(1);
    event_record(begin_, 0);
    g_questions.clear();
  }
  void TearDown() override {
    event_destroy(begin_);
    event_destroy(end_);
    stop_clock();
  }

  static void launch(unsigned blocks, uint64_t stream = 0) {
    const unsigned grid[3] = {blocks, 1, 1}, block[3] = {32, 1, 1};
    log_kernel("kernel", grid, block, 0, stream);
  }
  float took_ms() const {
    float out = -1;
    EXPECT_EQ(event_record(end_, 0), kSuccess);
    EXPECT_EQ(event_synchronize(end_), kSuccess);
    EXPECT_EQ(event_elapsed(begin_, end_, &out), kSuccess);
    return out;
  }
  static void run(const std::string& name, const std::vector<unsigned>& launches) {
    const char record = 0;
    begin_operator(&record, name + '\0');
    for (const unsigned blocks : launches) launch(blocks);
    end_operator(&record);
  }

  uint64_t begin_ = 0, end_ = 0;
};

TEST_F(OperatorLaunches, AnOperatorTakesItsTimeHoweverManyKernelsItLaunches) {
  run("aten::one", {1});
  run("aten::three", {1, 2, 5});
  EXPECT_NEAR(took_ms(), 8, 0.1);
  EXPECT_EQ(g_questions, (std::vector{"operator aten::one 1 1 1 1 32 1 1 kernel []"s, "operator aten::three 3 1 1 1 32 1 1 kernel []"s}));
}

TEST_F(OperatorLaunches, KernelsShareItInProportionToTheirThreads) {
  const char record = 0;
  const uint64_t between = event_create(0);
  const uint64_t other = stream_create(1, 0);
  begin_operator(&record, "aten::two\0"s);
  launch(3);
  const unsigned grid[3] = {1, 1, 1}, block[3] = {32, 1, 1};
  log_kernel("kernel", grid, block, 0, other);
  end_operator(&record);
  event_record(between, other);
  EXPECT_NEAR(took_ms(), 3, 0.1);
  event_destroy(between);
  stream_destroy(other);
}

// As in a radix sort, whose passes begin with a fill.
TEST_F(OperatorLaunches, AnOperatorTakesItsTimeOnceWhateverComesBetween) {
  const char record = 0, inner = 0;
  begin_operator(&record, "aten::sort\0"s);
  launch(1);
  for (int pass = 0; pass < 3; ++pass) {
    log_call("library", "function", "{}", 0);
    begin_operator(&inner, "aten::inner\0"s);
    launch(1);
    end_operator(&inner);
    launch(2);
  }
  end_operator(&record);
  EXPECT_NEAR(took_ms(), 4 + 3 * (2 + 4 + 1), 0.1);
  EXPECT_EQ(g_questions.size(), 4);
}

TEST_F(OperatorLaunches, EachKindIsAskedOnce) {
  for (int i = 0; i < 3; ++i) run("aten::one", {1, 1});
  EXPECT_NEAR(took_ms(), 12, 0.1);
  EXPECT_EQ(g_questions.size(), 1);
}

TEST_F(OperatorLaunches, AnEventInsideAnOperatorComesAfterTheLaunchesBeforeIt) {
  const char record = 0;
  const uint64_t inside = event_create(0);
  begin_operator(&record, "aten::one\0"s);
  launch(1);
  event_record(inside, 0);
  end_operator(&record);
  float ms = 0;
  took_ms();
  EXPECT_EQ(event_elapsed(begin_, inside, &ms), kSuccess);
  EXPECT_NEAR(ms, 4, 0.1);
  event_destroy(inside);
}

TEST_F(OperatorLaunches, TheInnermostOperatorOwnsALaunch) {
  const char outer = 0, inner = 0;
  begin_operator(&outer, "aten::outer\0"s);
  begin_operator(&inner, "aten::inner\0"s);
  launch(1);
  end_operator(&inner);
  launch(1);
  end_operator(&outer);
  launch(7);
  EXPECT_NEAR(took_ms(), 9, 0.1);
  EXPECT_EQ(g_questions, (std::vector{"operator aten::inner 1 1 1 1 32 1 1 kernel []"s, "operator aten::outer 1 1 1 1 32 1 1 kernel []"s,
                                      "kernel 7 1 1 32 1 1 kernel"s}));
}

// A pass of a sort takes the time of its grid. The operator's own kernels come after it.
TEST_F(OperatorLaunches, AKnownKernelTakesItsOwnTime) {
  const char record = 0;
  const char* const pass = "_ZN14at_cuda_detail3cub6detail10radix_sort29DeviceRadixSortOnesweepKernelIfE";
  const unsigned grid[3] = {9, 1, 1}, block[3] = {384, 1, 1};
  begin_operator(&record, "aten::sort\0"s);
  log_kernel(pass, grid, block, 0, 0);
  launch(1);
  end_operator(&record);
  EXPECT_NEAR(took_ms(), 1 + 4, 0.1);
  EXPECT_EQ(g_questions, (std::vector{"kernel 9 1 1 384 1 1 "s + pass, "operator aten::sort 1 1 1 1 32 1 1 kernel []"s}));
}

TEST_F(OperatorLaunches, AnOperatorOfTheHostLeavesItsKernelsToTheirThreads) {
  run("aten::host", {1, 1});
  EXPECT_NEAR(took_ms(), 2, 0.1);
}

TEST_F(OperatorLaunches, AnOperatorThatEndedElsewhereIsForgotten) {
  const char outer = 0, lost = 0, unknown = 0;
  begin_operator(&outer, "aten::outer\0"s);
  begin_operator(&lost, "aten::lost\0"s);
  end_operator(&unknown);
  end_operator(&outer);
  EXPECT_EQ(running_operator().call, 0);
}

TEST_F(OperatorLaunches, ThreadsHaveTheirOwnOperators) {
  const char record = 0;
  begin_operator(&record, "aten::one\0"s);
  std::thread([] {
    EXPECT_EQ(running_operator().call, 0);
    run("aten::other", {1});
  }).join();
  end_operator(&record);
  EXPECT_EQ(g_questions, (std::vector{"operator aten::other 1 1 1 1 32 1 1 kernel []"s}));
}

TEST_F(OperatorLaunches, ACallBetweenLaunchesKeepsItsPlace) {
  const char record = 0;
  begin_operator(&record, "aten::one\0"s);
  launch(1);
  log_call("cublas", "cublasSgemm_v2", "{}", 0);
  end_operator(&record);
  EXPECT_NEAR(took_ms(), 6, 0.1);
  EXPECT_EQ(g_questions, (std::vector{"call 0 0 cublas cublasSgemm_v2 {}"s, "operator aten::one 1 1 1 1 32 1 1 kernel []"s}));
}

TEST_F(OperatorLaunches, AGraphKeepsTheTimesOfItsCapture) {
  device_synchronize();
  const uint64_t stream = stream_create(1, 0);
  ASSERT_EQ(capture_begin(stream, 0, 0), kSuccess);
  const char record = 0;
  const unsigned grid[3] = {1, 1, 1}, block[3] = {32, 1, 1};
  begin_operator(&record, "aten::one\0"s);
  for (int i = 0; i < 2; ++i) log_kernel("kernel", grid, block, 0, stream);
  end_operator(&record);
  uint64_t graph = 0, exec = 0;
  ASSERT_EQ(capture_end(stream, &graph), kSuccess);
  ASSERT_EQ(graph_instantiate(graph, &exec), kSuccess);
  for (int i = 0; i < 50; ++i) launch(1, stream);  // as in SetUp(): the time between the two calls below must not count
  event_record(begin_, stream);
  ASSERT_EQ(graph_launch(exec, stream), kSuccess);
  event_record(end_, stream);
  ASSERT_EQ(event_synchronize(end_), kSuccess);
  float ms = 0;
  EXPECT_EQ(event_elapsed(begin_, end_, &ms), kSuccess);
  EXPECT_NEAR(ms, 4, 0.1);
  graph_exec_destroy(exec);
  graph_destroy(graph);
  stream_destroy(stream);
}

TEST(RunningOperators, ArgumentsAreWrittenAsInACapture) {
  const auto number = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  std::string tensor = "t\6\2"s;
  for (const int64_t one : {2, 3, 3, 1}) tensor += number(one);
  std::string on_host = "t\4"s + '\0' + '\0';
  const std::string written = "aten::name\0"s + tensor + "\1" + tensor + "\2" + on_host + "i" + number(int64_t{-7}) + "10n" + "l" +
                              number(uint32_t{2}) + "i" + number(int64_t{1}) + "i" + number(int64_t{2}) + "l" + number(uint32_t{0});
  EXPECT_EQ(
      operator_text(written),
      R"(aten::name [{"": [[2, 3], [3, 1]]}, {"": [[2, 3], [3, 1], "again"]}, {"": [[], [], "cpu"]}, -7, true, false, null, [1, 2], []])");
  EXPECT_EQ(operator_text(""), " []");
  EXPECT_EQ(operator_text("cut\0l\7"s), "cut [[]]");
}

}  // namespace
}  // namespace gpucast::vgpu
