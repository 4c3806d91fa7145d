#include "src/vgpu/core/graphs.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/streams.h"
#include "src/vgpu/core/test_launch.h"
#include "src/vgpu/core/user_objects.h"

namespace gpucast::vgpu {
namespace {

size_t node_count(uint64_t graph) {
  size_t count = 0;
  EXPECT_EQ(graph_nodes(graph, false, nullptr, &count), kSuccess);
  return count;
}

TEST(Graphs, UnknownHandlesAreErrors) {
  EXPECT_EQ(graph_launch(1, 0), kInvalidValue);
  int type = 0;
  EXPECT_EQ(graph_node_type(1, &type), kInvalidValue);
}

TEST(Graphs, CaptureCollectsWorkOfAllStreamsThatJoin) {
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

TEST(Graphs, WaitingForACapturedStreamBreaksTheCapture) {
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

TEST(Graphs, ADestroyedStreamEndsItsCapture) {
  const uint64_t stream = stream_create(1, 0);
  ASSERT_EQ(capture_begin(stream, 0, 0), kSuccess);
  EXPECT_EQ(stream_destroy(stream), kSuccess);
  EXPECT_EQ(device_synchronize(), kSuccess);
}

TEST(Graphs, GraphsHoldUserObjectsUntilTheLastIsGone) {
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

TEST(Graphs, HandMadeGraphsRunTheirNodes) {
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

}  // namespace
}  // namespace gpucast::vgpu
