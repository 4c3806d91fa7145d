#include "src/report/snapshot_export.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "src/base/bytes.h"
#include "src/predict/segments_at_end.h"
#include "src/trace/read_snapshot.h"

namespace gpucast {
namespace {

constexpr uint64_t kSnapshotBase = 0x7f0000000000;

Analysis snapshot_analysis(Trace trace) {
  Analysis out;
  out.facts = follow(std::move(trace));
  return out;
}

std::string written(const Analysis& f) {
  std::ostringstream out;
  write_snapshot(f, out);
  return out.str();
}

Trace read_back(const std::string& bytes) {
  const std::string path = testing::TempDir() + "snapshot_export_test." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << bytes;
  return read_snapshot(path, std::nullopt);
}

std::string stack_text(const Trace& trace, StackId id) {
  std::string text;
  if (!id.valid() || id.index() >= trace.stacks.size()) return text;
  const Stack& stack = trace.stacks[id.index()];
  for (uint32_t i = stack.first_frame; i < stack.first_frame + stack.frame_count; ++i) {
    const Frame& frame = trace.frames[trace.stack_frames[i].index()];
    text += std::string(trace.strings.text(frame.file)) + ":" + std::to_string(frame.line) + ":" +
            std::string(trace.strings.text(frame.function)) + "\n";
  }
  return text;
}

void expect_same_events(const Trace& a, const Trace& b) {
  ASSERT_EQ(a.events.size(), b.events.size());
  for (size_t i = 0; i < a.events.size(); ++i) {
    const AllocatorEvent &x = a.events[i], &y = b.events[i];
    EXPECT_EQ(std::tie(x.kind, x.address, x.size_bytes, x.stream, x.time_us),
              std::tie(y.kind, y.address, y.size_bytes, y.stream, y.time_us))
        << i;
    EXPECT_EQ(stack_text(a, x.stack), stack_text(b, y.stack)) << i;
  }
}

void expect_same_segments(const std::vector<SnapshotSegment>& a, const std::vector<SnapshotSegment>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(std::tie(a[i].address, a[i].size_bytes, a[i].stream, a[i].large, a[i].expandable, a[i].pool),
              std::tie(b[i].address, b[i].size_bytes, b[i].stream, b[i].large, b[i].expandable, b[i].pool));
    ASSERT_EQ(a[i].blocks.size(), b[i].blocks.size());
    for (size_t j = 0; j < a[i].blocks.size(); ++j) {
      const SnapshotBlock &x = a[i].blocks[j], &y = b[i].blocks[j];
      EXPECT_EQ(std::tie(x.address, x.size_bytes, x.requested_bytes, x.state),
                std::tie(y.address, y.size_bytes, y.requested_bytes, y.state));
    }
  }
}

class RealCaptures : public testing::TestWithParam<const char*> {};

TEST_P(RealCaptures, AreReadBackEqual) {
  const Analysis f = snapshot_analysis(read_trace(std::string(GPUCAST_SOURCE_DIR "/tests/cases/") + GetParam()));
  const std::string bytes = written(f);
  const Trace back = read_back(bytes);
  expect_same_events(f.facts->trace, back);
  expect_same_segments(segments_at_end(*f.facts), back.end_segments);
  const Analysis again = snapshot_analysis(read_back(bytes));
  EXPECT_TRUE(compare_with_recorded(again.facts->trace, again.facts->lifetimes).matches_recorded);
  EXPECT_EQ(again.facts->lifetimes.allocated, f.facts->lifetimes.allocated);
  EXPECT_EQ(again.facts->lifetimes.reserved, f.facts->lifetimes.reserved);
  EXPECT_EQ(written(again).empty(), false);
  if (f.facts->trace.header.source == "snapshot") {
    EXPECT_EQ(written(again), bytes) << "out of a snapshot the same snapshot";
  } else {
    EXPECT_NE(bytes.find("parameters: model_to_device, in "), std::string::npos) << "phase and module, in front of the stack";
    EXPECT_NE(bytes.find("optimizer_state"), std::string::npos);
    EXPECT_NE(bytes.find("unknown"), std::string::npos) << "memory_viz stops without it";
  }
}

INSTANTIATE_TEST_SUITE_P(SnapshotExport, RealCaptures,
                         testing::Values("real_mlp_torch26/input.jsonl", "real_mlp_torch214/input.jsonl", "snapshot_whole/input.pickle",
                                         "snapshot_ring_buffer/input.pickle", "snapshot_expandable/input.pickle"),
                         [](const auto& name) { return std::string(name.param).substr(0, std::string(name.param).find('/')); });

TEST(SnapshotExport, EndStateOfAHistory) {
  Trace trace;
  const auto event = [&](EventKind kind, uint64_t address, int64_t size, uint64_t stream = 0) {
    trace.events.push_back({kind, StackId(), address, size, stream, 1});
  };
  event(EventKind::segment_alloc, kSnapshotBase, 20 * kMiB);
  event(EventKind::alloc, kSnapshotBase, 5 * kMiB);
  event(EventKind::alloc, kSnapshotBase + 5 * kMiB, 3 * kMiB);
  event(EventKind::free_requested, kSnapshotBase + 5 * kMiB, 3 * kMiB);  // another stream still works on it
  event(EventKind::segment_map, UINT64_MAX - 64 * kMiB + 1, 2 * kMiB, 9);
  event(EventKind::alloc, UINT64_MAX - 64 * kMiB + 1, 700, 9);
  event(EventKind::segment_alloc, kSnapshotBase + 64 * kMiB, 2 * kMiB);
  trace.events.push_back({EventKind::oom, StackId(), 4096, int64_t{1} << 40, 0, 1});
  const Analysis f = snapshot_analysis(std::move(trace));
  const Trace back = read_back(written(f));
  expect_same_events(f.facts->trace, back);
  ASSERT_EQ(back.end_segments.size(), 3u);
  const SnapshotSegment& first = back.end_segments[0];
  EXPECT_TRUE(first.large);
  EXPECT_FALSE(first.expandable);
  ASSERT_EQ(first.blocks.size(), 3u);
  EXPECT_EQ(first.blocks[1].state, SnapshotBlockState::active_pending_free);
  EXPECT_EQ(first.blocks[1].size_bytes, 3 * kMiB);
  EXPECT_EQ(first.blocks[2].state, SnapshotBlockState::inactive);
  EXPECT_FALSE(back.end_segments[1].large);
  const SnapshotSegment& mapped = back.end_segments[2];
  EXPECT_TRUE(mapped.expandable);
  EXPECT_FALSE(mapped.large);
  EXPECT_EQ(mapped.address, UINT64_MAX - 64 * kMiB + 1) << "addresses of 64 bits";
  EXPECT_EQ(mapped.stream, 9u);
  ASSERT_EQ(mapped.blocks.size(), 2u);
  EXPECT_EQ(mapped.blocks[0].requested_bytes, 700);
}

TEST(SnapshotExport, NumbersAndTextsOfEveryLength) {
  Trace trace;
  trace.process.device = 3;
  trace.process.alloc_conf = "max_split_size_mb:64,garbage_collection_threshold:0.75,roundup_power2_divisions:4";
  const std::string long_name(1000, 'x');
  trace.frames.push_back({trace.strings.intern("not UTF-8: \xff\xc3 \xed\xa0\x80"), trace.strings.intern(long_name), 70000});
  trace.stack_frames.emplace_back(0);
  trace.stacks.push_back({0, 1});
  for (int bits = 0; bits < 44; ++bits) {
    for (const int64_t more : {-1, 0, 1}) {
      const int64_t size = (int64_t{1} << bits) + more;
      trace.events.push_back({EventKind::alloc, StackId(0), kSnapshotBase + static_cast<uint64_t>(size), size, 0, size * 1000});
    }
  }
  const Analysis f = snapshot_analysis(std::move(trace));
  const Trace back = read_back(written(f));
  ASSERT_EQ(back.events.size(), f.facts->trace.events.size());
  for (size_t i = 0; i < back.events.size(); ++i) {
    EXPECT_EQ(back.events[i].size_bytes, f.facts->trace.events[i].size_bytes);
    EXPECT_EQ(back.events[i].address, f.facts->trace.events[i].address);
    EXPECT_EQ(back.events[i].time_us, f.facts->trace.events[i].time_us);
  }
  EXPECT_EQ(back.process.device, 3);
  EXPECT_EQ(stack_text(back, back.events[0].stack), "not UTF-8: ?? ???:70000:" + long_name + "\n");
  const AllocConf conf = parse_alloc_conf(back.process.alloc_conf, "");
  EXPECT_EQ(conf.max_split_size_bytes, 64 * kMiB);
  EXPECT_EQ(conf.garbage_collection_threshold, 0.75);
  EXPECT_EQ(conf.roundup_power2_divisions[7], 4);
}

}  // namespace
}  // namespace gpucast
