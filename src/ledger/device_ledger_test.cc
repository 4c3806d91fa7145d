#include "src/ledger/device_ledger.h"

#include <gtest/gtest.h>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

TEST(LedgerFromCapture, HasTheMostThatALibraryTook) {
  Trace trace;
  const StringId nccl = trace.strings.intern("nccl"), buffers = trace.strings.intern("buffers");
  for (const int64_t bytes : {5 * kMiB, 3 * kMiB, -6 * kMiB, 2 * kMiB}) {
    trace.vgpu_events.push_back({VgpuEventKind::library_memory, nccl, buffers, 0, bytes});
  }
  const auto lines = ledger_from_capture(trace);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].what, "buffers");
  EXPECT_EQ(lines[0].expected_bytes, 8 * kMiB);
}

TEST(LedgerFromCapture, HasNoLineForUnusedLibraries) {
  const Trace nothing;
  EXPECT_TRUE(ledger_from_capture(nothing).empty());
}

TEST(DeviceLedger, HowToAskCudnnNamesOnlyReleasesThatAnswer) {
  Process process;
  process.cuda = "12.4";
  process.cudnn_not_asked = "missing";
  process.cudnn_required = "9.1.0.70";
  EXPECT_EQ(how_to_ask_cudnn(process).find("pip install"), std::string::npos);
  EXPECT_NE(how_to_ask_cudnn(process).find("--cudnn PATH (9.8 or newer)"), std::string::npos);
  process.cudnn_required = "9.10.2.21";
  EXPECT_EQ(how_to_ask_cudnn(process), "to have it asked: pip install --no-deps nvidia-cudnn-cu12==9.10.2.21");
  process.cudnn_required = "8.9.2.26";
  EXPECT_EQ(how_to_ask_cudnn(process).find("pip install"), std::string::npos);
}

}  // namespace
}  // namespace gpucast
