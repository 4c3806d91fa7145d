#include "src/vgpu/core/board.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace gpucast::vgpu {
namespace {

constexpr Shape kSum{"ncclAllReduce", 4, 0, -1, 1};

class BoardTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("board_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    setenv("GPUCAST_SESSION", folder_.c_str(), 1);
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"}) unsetenv(name);
  }
  void TearDown() override {
    unsetenv("GPUCAST_SESSION");
    std::filesystem::remove_all(folder_);
  }
  static std::string got(Board& board, int from, uint64_t number, int whom = kEveryone) {
    Post post{};
    switch (board.get(from, whom, number, kSum, &post)) {
      case Answer::posted:
        return post.known ? std::string(post.contents.begin(), post.contents.end()) : "unknown";
      case Answer::elsewhere:
        return "elsewhere";
      case Answer::silent:
        return "silent";
      case Answer::coming:
        break;
    }
    return "";
  }
  static std::string log() {
    char path[] = "/tmp/board_test_log.XXXXXX";
    close(mkstemp(path));
    gpucast_vgpu_write_log(path, 0);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    unlink(path);
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(BoardTest, NobodyToMeetWithoutASessionOrAlone) {
  EXPECT_EQ(Board::join("alone", 0, 1), nullptr);
  unsetenv("GPUCAST_SESSION");
  EXPECT_EQ(Board::join("nobody", 0, 2), nullptr);
}

TEST_F(BoardTest, WhatOneBringsTheOthersRead) {
  const auto zero = Board::join("two", 0, 2), one = Board::join("two", 1, 2);
  EXPECT_EQ(zero->post(kEveryone, kSum, "abc", 3), 0u);
  EXPECT_EQ(zero->post(kEveryone, kSum, nullptr, 3), 1u);
  EXPECT_EQ(zero->post(1, kSum, "for one", 7), 0u) << "messages have numbers of their own";
  EXPECT_EQ(got(*one, 0, 0), "abc");
  EXPECT_EQ(got(*one, 0, 1), "unknown");
  EXPECT_EQ(got(*one, 0, 0, 1), "for one");
  EXPECT_EQ(got(*zero, 0, 0), "abc") << "its own";
}

TEST_F(BoardTest, WaitsForARankThatIsLate) {
  const auto zero = Board::join("late", 0, 2);
  setenv("WORLD_SIZE", "2", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  std::shared_ptr<Board> one;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(zero->get(1, kEveryone, 0, kSum, nullptr, false), Answer::coming);
    one = Board::join("late", 1, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    one->post(kEveryone, kSum, "here", 4);
  });
  EXPECT_EQ(got(*zero, 1, 0), "here");
  late.join();
}

TEST_F(BoardTest, RanksOfOtherNodesAreNotWaitedFor) {
  setenv("WORLD_SIZE", "16", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  setenv("RANK", "4", 1);
  setenv("LOCAL_RANK", "0", 1);
  const auto board = Board::join("nodes", 4, 16);
  for (const int other : {0, 3, 6, 15}) EXPECT_EQ(got(*board, other, 0), "elsewhere");
  const auto neighbour = Board::join("nodes", 5, 16);
  neighbour->post(kEveryone, kSum, "near", 4);
  EXPECT_EQ(got(*board, 5, 0), "near");
}

TEST_F(BoardTest, NothingSaysWhereItRunsAndNobodyElseIsThere) {
  const auto board = Board::join("alone", 0, 8);
  EXPECT_EQ(got(*board, 3, 0), "elsewhere");
}

TEST_F(BoardTest, OneThatLeftIsNotWaitedForButWhatItBroughtStays) {
  const auto zero = Board::join("left", 0, 2), one = Board::join("left", 1, 2);
  one->post(kEveryone, kSum, "last", 4);
  one->leave();
  one->post(kEveryone, kSum, "more", 4);
  EXPECT_EQ(got(*zero, 1, 0), "last");
  EXPECT_EQ(got(*zero, 1, 1), "silent");
  EXPECT_FALSE(zero->failed());
  EXPECT_NE(log().find("rank 1 ended before ncclAllReduce"), std::string::npos);
}

TEST_F(BoardTest, OneThatIsKilledIsNoticed) {
  const auto zero = Board::join("killed", 0, 2);
  const pid_t child = fork();
  if (child == 0) {
    const auto one = Board::join("killed", 1, 2);
    one->post(kEveryone, kSum, "last", 4);
    kill(getpid(), SIGKILL);
  }
  setenv("WORLD_SIZE", "2", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  EXPECT_EQ(got(*zero, 1, 0), "last");
  EXPECT_EQ(got(*zero, 1, 1), "silent");
  EXPECT_TRUE(zero->failed());
  EXPECT_NE(log().find("rank 1 died before ncclAllReduce"), std::string::npos);
  waitpid(child, nullptr, 0);
}

TEST_F(BoardTest, DifferentCallsAreSaidOnce) {
  const auto zero = Board::join("differ", 0, 2), one = Board::join("differ", 1, 2);
  one->post(kEveryone, {"ncclBroadcast", 4, 0, 0, 7}, "x", 1);
  EXPECT_EQ(got(*zero, 1, 0), "x");
  const std::string text = log();
  const size_t first = text.find("rank 0 calls ncclAllReduce of 1 elements where rank 1 calls ncclBroadcast of 7 elements");
  ASSERT_NE(first, std::string::npos);
}

}  // namespace
}  // namespace gpucast::vgpu
