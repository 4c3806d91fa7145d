#include "src/search/scaled_history.h"

#include <gtest/gtest.h>

namespace gpucast::search {
namespace {

struct Request {
  int64_t bytes = 0;
  uint32_t marks_before = 0;
};

// Each request is given back at the end, or, `at_once`, right away.
MarkedHistory run_of(const std::vector<Request>& requests, bool at_once = false) {
  MarkedHistory out;
  out.marks = {MarkKind::module_begin, MarkKind::module_end};
  for (uint32_t id = 0; id < requests.size(); ++id) {
    out.history.ops.push_back({.kind = OpKind::alloc, .id = id, .size_bytes = requests[id].bytes});
    out.marks_before.push_back(requests[id].marks_before);
    if (at_once) out.history.ops.push_back({.kind = OpKind::free, .id = id});
  }
  for (uint32_t id = 0; !at_once && id < requests.size(); ++id) out.history.ops.push_back({.kind = OpKind::free, .id = id});
  return out;
}

std::vector<int64_t> bytes_of(const History& history) {
  std::vector<int64_t> out;
  for (const AllocOp& op : history.ops) {
    if (op.kind == OpKind::alloc) out.push_back(op.size_bytes);
  }
  return out;
}

TEST(ScaledHistory, WeightsStayAndActivationsGrow) {
  const MarkedHistory at_8 = run_of({{1000, 0}, {800, 1}, {480, 1}}), at_16 = run_of({{1000, 0}, {1600, 1}, {560, 1}});
  const auto growth = growth_bytes(at_16, 16, at_8, 8);
  EXPECT_EQ(growth, (std::vector<double>{0, 100, 10}));
  EXPECT_EQ(bytes_of(scaled(at_16, growth, 24)), (std::vector<int64_t>{1000, 4000, 800}));
  EXPECT_EQ(bytes_of(scaled(at_16, growth, -8)), (std::vector<int64_t>{1000, 800, 480}));
}

TEST(ScaledHistory, AWindowWithOneRequestMorePairsBySize) {
  const MarkedHistory at_8 = run_of({{1000, 0}, {800, 1}, {64, 2}}), at_16 = run_of({{1000, 0}, {32, 1}, {1600, 1}, {128, 2}});
  EXPECT_EQ(growth_bytes(at_16, 16, at_8, 8), (std::vector<double>{0, 0, 100, 8}));
}

TEST(ScaledHistory, NothingGrowsFasterThanInProportion) {
  const MarkedHistory at_8 = run_of({{10, 0}}), at_16 = run_of({{1600, 0}});  // a workspace
  EXPECT_EQ(growth_bytes(at_16, 16, at_8, 8), (std::vector<double>{100}));
  EXPECT_EQ(growth_bytes(at_8, 8, at_16, 16), (std::vector<double>{1.25}));
}

TEST(ScaledHistory, RunsOfAnotherFormSayNothing) {
  MarkedHistory other = run_of({{10, 0}});
  other.marks.pop_back();
  EXPECT_TRUE(growth_bytes(run_of({{20, 0}}), 2, other, 1).empty());
  EXPECT_TRUE(growth_bytes(run_of({{20, 0}}), 2, run_of({{20, 0}}), 2).empty());
}

TEST(ScaledHistory, ALongerRunIsComparedByItsBeginning) {
  MarkedHistory longer = run_of({{1000, 0}, {1600, 1}, {560, 2}, {1600, 3}, {560, 4}}, true);
  longer.marks = {MarkKind::module_begin, MarkKind::module_end, MarkKind::module_begin, MarkKind::module_end};
  const MarkedHistory cut = beginning_of(longer, 2);
  EXPECT_EQ(bytes_of(cut.history), (std::vector<int64_t>{1000, 1600, 560}));
  EXPECT_EQ(cut.history.ops.size(), 6);  // each is given back
  EXPECT_EQ(growth_bytes(cut, 16, run_of({{1000, 0}, {800, 1}, {480, 2}}), 8), (std::vector<double>{0, 100, 10}));
  EXPECT_EQ(beginning_of(longer, 9).history.ops.size(), longer.history.ops.size());
}

TEST(ScaledHistory, WhatIsGivenBackAtOnceIsAWorkspace) {
  EXPECT_EQ(bytes_of(without_workspaces(run_of({{500, 0}, {700, 1}}, true)).history), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(bytes_of(without_workspaces(run_of({{500, 0}, {700, 1}})).history), (std::vector<int64_t>{500, 700}));
}

}  // namespace
}  // namespace gpucast::search
