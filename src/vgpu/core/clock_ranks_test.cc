#include "src/vgpu/core/clock_ranks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/core.h"
#include "src/vgpu/core/graphs.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {
namespace {

// A kernel "long" takes 50 ms. Calls of NCCL take 2 ms; a buffer holds 1 MiB; what is called "pair" has messages that meet one by one.
std::string answer_of_ranks(const std::string& question) {
  if (question.starts_with("nccl")) return question.ends_with("pair") ? "2000000 0.1 0.1 0.1 1048576 0\n" : "2000000 0.1 0.1 0.1 0 1\n";
  return question.ends_with(" long") ? "50000000 0 1\n" : "1000000 0 1\n";
}

class ClockRanks : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("clock_ranks_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    setenv("GPUCAST_SESSION", folder_.c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
  }
  void TearDown() override {
    stop_clock();
    for (const char* name : {"GPUCAST_SESSION", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}) unsetenv(name);
    std::filesystem::remove_all(folder_);
  }

  static void launch(const char* name, uint64_t stream) {
    const unsigned grid[3] = {1, 1, 1}, block[3] = {32, 1, 1};
    log_kernel(name, grid, block, 0, stream);
  }
  static void communicate(const std::shared_ptr<Board>& board, uint64_t stream, std::vector<RankWork::Message> messages = {}) {
    RankWork work;
    work.board = board;
    const std::string calls = messages.empty() ? "all" : "pair";
    work.messages = std::move(messages);
    clock_communicate("ncclTest", calls, std::move(work), stream);
  }
  static float elapsed_ms(uint64_t from, uint64_t to) {
    float out = -1;
    EXPECT_EQ(event_elapsed(from, to, &out), kSuccess);
    return out;
  }

  // Runs this as rank 1 in another process. Returns rank 0's milliseconds on its stream.
  float ms_beside(const std::function<void(const std::shared_ptr<Board>&, uint64_t)>& other,
                  const std::function<void(const std::shared_ptr<Board>&, uint64_t)>& mine) {
    const pid_t child = fork();
    if (child == 0) {
      start_clock(ClockMode::warp, answer_of_ranks);
      const auto board = Board::join("pair", 1, 2);
      const uint64_t stream = stream_create(1, 0);
      other(board, stream);
      stream_synchronize(stream);
      board->leave();
      _exit(0);
    }
    start_clock(ClockMode::warp, answer_of_ranks);
    const auto board = Board::join("pair", 0, 2);
    const uint64_t stream = stream_create(1, 0), begin = event_create(0), end = event_create(0);
    event_record(begin, stream);
    mine(board, stream);
    event_record(end, stream);
    EXPECT_EQ(event_synchronize(end), kSuccess);
    const float out = elapsed_ms(begin, end);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return out;
  }

  std::filesystem::path folder_;
};

using std::chrono::milliseconds;

TEST_F(ClockRanks, TwoCardsOfOneProcessMeet) {
  start_clock(ClockMode::warp, answer_of_ranks);
  const auto first = Board::join("both", 0, 2), second = Board::join("both", 1, 2);
  const uint64_t one = stream_create(1, 0), other = stream_create(1, 0);
  const uint64_t begin = event_create(0), end = event_create(0), other_end = event_create(0);
  event_record(begin, one);
  launch("short", one);
  launch("long", other);
  communicate(first, one);
  communicate(second, other);
  event_record(end, one);
  event_record(other_end, other);
  EXPECT_EQ(device_synchronize(), kSuccess);
  // The kernels share the card for 2 ms. Then NCCL's kernel waits on a tenth of it.
  EXPECT_NEAR(elapsed_ms(begin, end), 2 + 49 / 0.9 + 2, 0.5);
  EXPECT_NEAR(elapsed_ms(begin, other_end), 2 + 49 / 0.9 + 2, 0.5);
}

TEST_F(ClockRanks, TheLastRankHoldsTheOther) {
  const float ms = ms_beside(
      [](const auto& board, uint64_t stream) {
        launch("long", stream);
        communicate(board, stream);
      },
      [](const auto& board, uint64_t stream) { communicate(board, stream); });
  EXPECT_GT(ms, 35) << "this process may start later";
  EXPECT_LT(ms, 80) << "the other process may start later";
}

TEST_F(ClockRanks, AHostThatSleepsLetsItsCardGoOn) {
  const float ms = ms_beside(
      [](const auto& board, uint64_t stream) {
        launch("short", stream);
        communicate(board, stream);
        std::this_thread::sleep_for(milliseconds(300));
      },
      [](const auto& board, uint64_t stream) { communicate(board, stream); });
  EXPECT_LT(ms, 100) << "the other rank makes no call meanwhile";
}

TEST_F(ClockRanks, SmallMessagesDoNotHoldTheirSender) {
  const auto receive = [](int64_t size_bytes) {
    return [=](const auto& board, uint64_t stream) {
      launch("long", stream);
      communicate(board, stream, {{0, true, size_bytes}});
    };
  };
  const auto send = [](int64_t size_bytes) {
    return [=](const auto& board, uint64_t stream) { communicate(board, stream, {{1, false, size_bytes}}); };
  };
  EXPECT_LT(ms_beside(receive(1000), send(1000)), 10);
  std::filesystem::remove_all(folder_);
  EXPECT_GT(ms_beside(receive(8 << 20), send(8 << 20)), 35);
}

TEST_F(ClockRanks, AReceiverWaitsForItsMessage) {
  const float ms = ms_beside(
      [](const auto& board, uint64_t stream) {
        launch("long", stream);
        communicate(board, stream, {{0, false, 1000}});
      },
      [](const auto& board, uint64_t stream) {
        communicate(board, stream, {{1, true, 1000}});
      });
  EXPECT_GT(ms, 35);
}

TEST_F(ClockRanks, ARankThatEndsHoldsNobody) {
  const float ms = ms_beside([](const auto&, uint64_t) {}, [](const auto& board, uint64_t stream) { communicate(board, stream); });
  EXPECT_GE(ms, 2);
  EXPECT_LT(ms, 50);
}

}  // namespace
}  // namespace gpucast::vgpu
