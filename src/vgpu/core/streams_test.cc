#include "src/vgpu/core/streams.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/log.h"

namespace gpucast::vgpu {
namespace {

constexpr unsigned kOne[3] = {1, 1, 1};
void launch(uint64_t stream) { log_kernel("kernel", kOne, kOne, 0, stream); }

size_t node_count(uint64_t graph) {
  size_t count = 0;
  EXPECT_EQ(graph_nodes(graph, false, nullptr, &count), kSuccess);
  return count;
}

TEST(Streams, UnknownHandlesAreErrors) {
  StreamInfo info;
  EXPECT_EQ(stream_info(12345, &info), kInvalidHandle);
  EXPECT_EQ(stream_destroy(0), kInvalidHandle);
  EXPECT_EQ(event_record(1, 0), kInvalidHandle);
  EXPECT_EQ(graph_launch(1, 0), kInvalidValue);
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

TEST(Streams, CaptureCollectsWorkOfAllStreamsThatJoin) {
  const uint64_t origin = stream_create(1, 0), other = stream_create(1, 0), event = event_create(0);
  ASSERT_EQ(capture_begin(origin, 0, 0), kSuccess);
  launch(origin);
  event_record(event, origin);
  ASSERT_EQ(stream_wait_event(other, event), kSuccess);
  launch(other);
  fill(0x10, 0, 4, other);
  CaptureInfo info;
  ASSERT_EQ(capture_info(other, &info), kSuccess);
  EXPECT_EQ(info.status, kCaptureActive);
  EXPECT_EQ(info.dependency_count, 1u);
  ASSERT_EQ(capture_info(0, &info), kSuccess);
  EXPECT_EQ(info.status, kCaptureNone);
  event_record(event, other);
  ASSERT_EQ(stream_wait_event(origin, event), kSuccess);
  launch(origin);
  uint64_t graph = 0;
  ASSERT_EQ(capture_end(origin, &graph), kSuccess);
  ASSERT_EQ(node_count(graph), 4u);
  ASSERT_EQ(capture_info(other, &info), kSuccess);
  EXPECT_EQ(info.status, kCaptureNone);

  std::vector<uint64_t> nodes(4);
  size_t count = 4, dependencies = 0;
  ASSERT_EQ(graph_nodes(graph, false, nodes.data(), &count), kSuccess);
  ASSERT_EQ(graph_node_dependencies(nodes[3], nullptr, &dependencies), kSuccess);
  EXPECT_EQ(dependencies, 2u) << "the join";
  size_t edges = 0;
  ASSERT_EQ(graph_edges(graph, nullptr, nullptr, &edges), kSuccess);
  EXPECT_EQ(edges, 4u);
  int type = -1;
  ASSERT_EQ(graph_node_type(nodes[2], &type), kSuccess);
  EXPECT_EQ(type, kGraphNodeMemset);

  uint64_t exec = 0;
  ASSERT_EQ(graph_instantiate(graph, &exec), kSuccess);
  EXPECT_EQ(graph_destroy(graph), kSuccess);
  const uint64_t before = operations();
  EXPECT_EQ(graph_launch(exec, 0), kSuccess);
  EXPECT_EQ(operations() - before, 4u);
  EXPECT_EQ(graph_exec_destroy(exec), kSuccess);
  EXPECT_EQ(graph_launch(exec, 0), kInvalidValue);
  stream_destroy(origin);
  stream_destroy(other);
  event_destroy(event);
}

TEST(Streams, WaitingForACapturedStreamBreaksTheCapture) {
  const uint64_t stream = stream_create(1, 0);
  EXPECT_EQ(capture_begin(0, 0, 0), kCaptureUnsupported) << "the default stream";
  EXPECT_EQ(capture_end(stream, nullptr), kIllegalState);
  ASSERT_EQ(capture_begin(stream, 0, 0), kSuccess);
  EXPECT_EQ(capture_begin(stream, 0, 0), kIllegalState);
  EXPECT_EQ(stream_synchronize(stream), kCaptureUnsupported);
  CaptureInfo info;
  ASSERT_EQ(capture_info(stream, &info), kSuccess);
  EXPECT_EQ(info.status, kCaptureBroken);
  uint64_t graph = 1;
  EXPECT_EQ(capture_end(stream, &graph), kCaptureInvalidated);
  EXPECT_EQ(graph, 0u);
  EXPECT_EQ(stream_synchronize(stream), kSuccess);
  ASSERT_EQ(capture_begin(stream, 0, 0), kSuccess);
  EXPECT_EQ(device_synchronize(), kCaptureUnsupported);
  EXPECT_EQ(capture_end(stream, &graph), kCaptureInvalidated);
  EXPECT_EQ(device_synchronize(), kSuccess);
  stream_destroy(stream);
}

TEST(Streams, ADestroyedStreamEndsItsCapture) {
  const uint64_t stream = stream_create(1, 0);
  ASSERT_EQ(capture_begin(stream, 0, 0), kSuccess);
  EXPECT_EQ(stream_destroy(stream), kSuccess);
  EXPECT_EQ(device_synchronize(), kSuccess);
}

TEST(Streams, GraphsHoldUserObjectsUntilTheLastIsGone) {
  static int destroyed = 0;
  destroyed = 0;
  const uint64_t graph = graph_create(), object = user_object_create({[](void*) { ++destroyed; }, nullptr}, 1);
  ASSERT_EQ(graph_retain_user_object(graph, object, 1, true), kSuccess);
  uint64_t exec = 0, clone = 0;
  ASSERT_EQ(graph_instantiate(graph, &exec), kSuccess);
  ASSERT_EQ(graph_clone(graph, &clone), kSuccess);
  graph_destroy(graph);
  graph_destroy(clone);
  EXPECT_EQ(destroyed, 0);
  graph_exec_destroy(exec);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(user_object_change(object, -1), kInvalidValue);
}

TEST(Streams, HandMadeGraphsRunTheirNodes) {
  static int called = 0;
  called = 0;
  const uint64_t graph = graph_create(), child = graph_create();
  uint64_t a = 0, b = 0, c = 0, exec = 0;
  ASSERT_EQ(graph_add_node(child, nullptr, 0, kGraphNodeHost, "", 0, {[](void*) { ++called; }, nullptr}, &c), kSuccess);
  ASSERT_EQ(graph_add_node(graph, nullptr, 0, kGraphNodeEmpty, "", 0, {nullptr, nullptr}, &a), kSuccess);
  ASSERT_EQ(graph_add_node(graph, &a, 1, kGraphNodeGraph, "", child, {nullptr, nullptr}, &b), kSuccess);
  EXPECT_EQ(graph_add_node(graph, &exec, 1, kGraphNodeEmpty, "", 0, {nullptr, nullptr}, &c), kInvalidValue) << "unknown dependency";
  size_t roots = 0;
  ASSERT_EQ(graph_nodes(graph, true, nullptr, &roots), kSuccess);
  EXPECT_EQ(roots, 1u);
  ASSERT_EQ(graph_instantiate(graph, &exec), kSuccess);
  ASSERT_EQ(graph_launch(exec, 0), kSuccess);
  EXPECT_EQ(called, 1);
  EXPECT_EQ(graph_destroy_node(a), kSuccess);
  EXPECT_EQ(node_count(graph), 1u);
  graph_exec_destroy(exec);
  graph_destroy(graph);
  graph_destroy(child);
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
  EXPECT_EQ(event_query(first), kNotReady) << "nobody waited for it";
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
