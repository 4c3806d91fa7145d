#include "src/vgpu/core/streams.h"

#include <gtest/gtest.h>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/test_launch.h"

namespace gpucast::vgpu {
namespace {

TEST(Streams, UnknownHandlesAreErrors) {
  StreamInfo info;
  EXPECT_EQ(stream_info(12345, &info), kInvalidHandle);
  EXPECT_EQ(stream_destroy(0), kInvalidHandle);
  EXPECT_EQ(event_record(1, 0), kInvalidHandle);
  const uint64_t stream = stream_create(1, -2);
  ASSERT_EQ(stream_info(stream, &info), kSuccess);
  EXPECT_EQ(info.priority, -2);
  EXPECT_EQ(stream % 16, 0u) << "as a pointer";
  EXPECT_EQ(stream_destroy(stream), kSuccess);
  EXPECT_EQ(stream_synchronize(stream), kInvalidHandle);
}

TEST(Streams, EventTimesFollowTheWork) {
  const uint64_t a = event_create(0), b = event_create(0), silent = event_create(kEventDisableTiming);
  float ms = 0;
  EXPECT_EQ(event_elapsed(a, b, &ms), kInvalidHandle) << "never recorded";
  ASSERT_EQ(event_record(a, 0), kSuccess);
  for (int i = 0; i < 10; ++i) launch(0);
  ASSERT_EQ(event_record(b, 0), kSuccess);
  ASSERT_EQ(event_elapsed(a, b, &ms), kSuccess);
  EXPECT_NEAR(ms, 1.0, 0.01);
  ASSERT_EQ(event_elapsed(b, a, &ms), kSuccess);
  EXPECT_LT(ms, 0);
  ASSERT_EQ(event_record(silent, 0), kSuccess);
  EXPECT_EQ(event_elapsed(a, silent, &ms), kInvalidHandle);
  for (const uint64_t event : {a, b, silent}) EXPECT_EQ(event_destroy(event), kSuccess);
}

TEST(Streams, HeldWorkLastsUntilSomethingWaitsForIt) {
  const uint64_t held = stream_create(1, 0), other = stream_create(1, 0);
  const uint64_t before = event_create(0), first = event_create(0), second = event_create(0), elsewhere = event_create(0);
  event_record(before, held);
  ASSERT_EQ(gpucast_vgpu_hold_stream(held), kSuccess);
  event_record(first, held);
  event_record(second, held);
  event_record(elsewhere, other);
  EXPECT_EQ(event_query(before), kSuccess);
  EXPECT_EQ(event_query(first), kNotReady);
  EXPECT_EQ(event_query(elsewhere), kSuccess);
  EXPECT_EQ(stream_query(held), kNotReady);
  EXPECT_EQ(event_synchronize(before), kSuccess);
  EXPECT_EQ(stream_synchronize(other), kSuccess);
  EXPECT_EQ(event_query(first), kNotReady) << "nothing waited for it";
  EXPECT_EQ(event_synchronize(first), kSuccess);
  EXPECT_EQ(event_query(first), kSuccess);
  EXPECT_EQ(event_query(second), kNotReady) << "submitted after what was waited for";

  ASSERT_EQ(stream_wait_event(other, second), kSuccess);
  event_record(elsewhere, other);
  EXPECT_EQ(event_query(elsewhere), kNotReady);
  EXPECT_EQ(event_synchronize(elsewhere), kSuccess);
  EXPECT_EQ(event_query(second), kSuccess);

  const auto free_device = [](uint64_t) {
    finish_all_work();
    return int{kSuccess};
  };
  using Wait = int (*)(uint64_t);
  for (const Wait wait : {Wait{stream_synchronize}, Wait{[](uint64_t) { return device_synchronize(); }}, Wait{free_device}}) {
    event_record(first, held);
    EXPECT_EQ(event_query(first), kNotReady) << "still held";
    EXPECT_EQ(wait(held), kSuccess);
    EXPECT_EQ(event_query(first), kSuccess);
  }
  event_record(first, held);
  EXPECT_EQ(gpucast_vgpu_finish_stream(held), kSuccess);
  event_record(second, held);
  for (const uint64_t event : {first, second}) EXPECT_EQ(event_query(event), kSuccess);
  EXPECT_EQ(gpucast_vgpu_hold_stream(12345), kInvalidHandle);
  EXPECT_EQ(gpucast_vgpu_finish_stream(12345), kInvalidHandle);
  for (const uint64_t event : {before, first, second, elsewhere}) event_destroy(event);
}

}  // namespace
}  // namespace gpucast::vgpu
