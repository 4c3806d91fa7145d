#include "src/predict/device_ledger.h"

#include <gtest/gtest.h>

namespace gpucast {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(LedgerFromCapture, SaysThatConvolutionWorkspacesAreNotModelled) {
  Trace trace;
  trace.cudnn_convolutions = 1;
  const auto lines = ledger_from_capture(trace, 1000 * kMiB);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].low_bytes, 0);
  EXPECT_EQ(lines[0].expected_bytes, 0);
  EXPECT_EQ(lines[0].high_bytes, 180 * kMiB);
}

TEST(LedgerFromCapture, HasNoLineForWhatTheRunDidNotUse) {
  const Trace nothing;
  EXPECT_TRUE(ledger_from_capture(nothing, 1000 * kMiB).empty());
}

}  // namespace
}  // namespace gpucast
