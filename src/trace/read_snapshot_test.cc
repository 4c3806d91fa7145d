#include "src/trace/read_snapshot.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"
#include "src/trace/pickle_text.h"

namespace gpucast {
namespace {

namespace pt = pickle_text;
using Items = std::vector<std::pair<std::string_view, std::string>>;

constexpr int64_t kBase = 0x7f0000000000;

const std::string kFrame = pt::dict({{"name", pt::text("main")}, {"filename", pt::text("train.py")}, {"line", pt::number(17)}});

std::string event(std::string_view action, int64_t address, int64_t size, const Items& more = {}) {
  Items items = {{"action", pt::text(action)}, {"addr", pt::number(address)}, {"size", pt::number(size)},
                 {"stream", pt::number(7)},    {"time_us", pt::number(99)},   {"frames", pt::list({kFrame, kFrame})}};
  items.insert(items.end(), more.begin(), more.end());
  return pt::dict(items);
}

std::string block(std::string_view state, int64_t size, const Items& more = {}) {
  Items items = {{"size", pt::number(size)}, {"state", pt::text(state)}};
  items.insert(items.end(), more.begin(), more.end());
  return pt::dict(items);
}

std::string segment(int64_t address, int64_t size, const std::vector<std::string>& blocks, const Items& more = {}) {
  Items items = {{"device", pt::number(0)}, {"address", pt::number(address)},    {"total_size", pt::number(size)},
                 {"stream", pt::number(7)}, {"segment_type", pt::text("small")}, {"blocks", pt::list(blocks)}};
  items.insert(items.end(), more.begin(), more.end());
  return pt::dict(items);
}

Items top(const std::vector<std::string>& segments, const std::vector<std::string>& traces) {
  return {{"segments", pt::list(segments)}, {"device_traces", pt::list(traces)}};
}

Trace read_items(const Items& snapshot, std::optional<int> device = std::nullopt) {
  return read_snapshot(pt::file(testing::TempDir(), pt::pickle(pt::dict(snapshot))), device);
}

Error snapshot_error(const Items& snapshot, std::optional<int> device = std::nullopt) {
  try {
    read_items(snapshot, device);
  } catch (const Error& error) {
    return error;
  }
  return Error("nothing was thrown");
}

TEST(ReadSnapshot, EventsStacksAndState) {
  const std::string pool = "K\x01K\x02\x86";
  const Trace t =
      read_items(top({segment(kBase, 2048,
                              {block("active_allocated", 512,
                                     {{"address", pt::number(kBase)}, {"requested_size", pt::number(500)}, {"frames", pt::list({kFrame})}}),
                               block("active_awaiting_free", 1024, {{"requested_size", pt::number(1000)}}),
                               block("inactive", 512, {{"requested_size", pt::number(3)}})},
                              {{"is_expandable", pt::boolean(true)}, {"segment_pool_id", pool}})},
                     {pt::list({event("segment_map", kBase, 2048), event("alloc", kBase, 500), event("snapshot", 0, 0),
                                pt::dict({{"action", pt::text("oom")}, {"size", pt::number(1000)}, {"device_free", pt::number(64)}})})}));
  EXPECT_EQ(t.header.source, "snapshot");
  ASSERT_EQ(t.events.size(), 3u);
  EXPECT_EQ(t.events[0].kind, EventKind::segment_map);
  EXPECT_EQ(t.events[1].address, static_cast<uint64_t>(kBase));
  EXPECT_EQ(t.events[1].size_bytes, 500);
  EXPECT_EQ(t.events[1].stream, 7u);
  EXPECT_EQ(t.events[1].time_us, 99);
  EXPECT_EQ(t.events[2].kind, EventKind::oom);
  EXPECT_EQ(t.events[2].address, 64u);
  ASSERT_EQ(t.stacks.size(), 2u) << "equal stacks are one";
  EXPECT_EQ(t.frames.size(), 1u);
  const Stack& stack = t.stacks[t.events[1].stack.index()];
  ASSERT_EQ(stack.frame_count, 2u);
  const Frame& frame = t.frames[t.stack_frames[stack.first_frame].index()];
  EXPECT_EQ(t.strings.text(frame.file), "train.py");
  EXPECT_EQ(t.strings.text(frame.function), "main");
  EXPECT_EQ(frame.line, 17);
  ASSERT_EQ(t.end_segments.size(), 1u);
  const SnapshotSegment& s = t.end_segments[0];
  EXPECT_TRUE(s.expandable);
  EXPECT_FALSE(s.large);
  EXPECT_EQ(s.pool, std::make_pair(int64_t{1}, int64_t{2}));
  ASSERT_EQ(s.blocks.size(), 3u);
  EXPECT_EQ(s.blocks[1].address, static_cast<uint64_t>(kBase + 512)) << "left out in older releases";
  EXPECT_EQ(s.blocks[0].state, SnapshotBlockState::active_allocated);
  EXPECT_EQ(s.blocks[1].state, SnapshotBlockState::active_pending_free);
  EXPECT_EQ(s.blocks[2].state, SnapshotBlockState::inactive);
  EXPECT_EQ(s.blocks[0].requested_bytes, 500);
  EXPECT_TRUE(s.blocks[0].stack.valid());
  for (size_t i = 0; i < static_cast<size_t>(Problem::count_); ++i) EXPECT_EQ(t.problems[static_cast<Problem>(i)].count, 0) << i;
}

TEST(ReadSnapshot, OldReleases) {
  const std::string past = pt::dict({{"addr", pt::number(kBase)}, {"real_size", pt::number(400)}, {"frames", pt::list({kFrame})}});
  const Trace t =
      read_items(top({segment(kBase, 512, {block("active_allocated", 512, {{"history", pt::list({past})}})})},
                     {pt::list({pt::dict({{"action", pt::text("alloc")}, {"addr", pt::number(kBase)}, {"size", pt::number(400)}})})}));
  ASSERT_EQ(t.events.size(), 1u);
  EXPECT_EQ(t.events[0].time_us, 0);
  EXPECT_FALSE(t.events[0].stack.valid());
  EXPECT_EQ(t.end_segments[0].blocks[0].requested_bytes, 400);
  EXPECT_TRUE(t.end_segments[0].blocks[0].stack.valid());
  EXPECT_EQ(t.process.alloc_conf, "");
}

TEST(ReadSnapshot, Devices) {
  const std::vector<std::string> none;
  const auto two = top({segment(kBase, 512, {block("inactive", 512)}, {{"device", pt::number(2)}}),
                        segment(kBase, 1024, {block("inactive", 1024)}, {{"device", pt::number(1)}})},
                       {"]", pt::list({event("segment_alloc", kBase, 1024)}),
                        pt::list({event("segment_alloc", kBase, 512), event("alloc", kBase, 1)}), "]"});
  const Error error = snapshot_error(two);
  EXPECT_STREQ(error.what(), "the snapshot holds the history of several devices");
  EXPECT_NE(error.hint.find("--device N (1: 1 events, 2: 2 events)"), std::string::npos) << error.hint;
  const Trace second = read_items(two, 2);
  EXPECT_EQ(second.events.size(), 2u);
  EXPECT_EQ(second.events[0].size_bytes, 512);
  EXPECT_EQ(second.process.device, 2);
  ASSERT_EQ(second.end_segments.size(), 1u);
  EXPECT_EQ(second.end_segments[0].size_bytes, 512);
  EXPECT_EQ(read_items(two, 1).events.size(), 1u);
  for (const int absent : {-1, 0, 3, 4, 1000})
    EXPECT_NE(std::string(snapshot_error(two, absent).what()).find("no history of device"), std::string::npos);
}

TEST(ReadSnapshot, Settings) {
  const auto conf_of = [](const Items& settings) {
    Items snapshot = top({}, {pt::list({event("alloc", kBase, 1)})});
    snapshot.emplace_back("allocator_settings", pt::dict(settings));
    return read_items(snapshot).process.alloc_conf;
  };
  EXPECT_EQ(conf_of({{"PYTORCH_CUDA_ALLOC_CONF", pt::text("")},
                     {"max_split_size", pt::number(-1)},
                     {"garbage_collection_threshold", std::string("G\0\0\0\0\0\0\0\0", 9)},
                     {"expandable_segments", pt::boolean(false)},
                     {"roundup_power2_divisions", pt::dict({{"1", pt::number(0)}, {"2", pt::number(0)}})}}),
            "");
  EXPECT_EQ(
      conf_of({{"PYTORCH_CUDA_ALLOC_CONF", pt::text("max_split_size_mb:9, roundup_power2_divisions:[1:2,>:4],large_segment_size_mb:64")},
               {"max_split_size", pt::number(128 << 20)},
               {"garbage_collection_threshold", std::string("G\x3f\xe0\0\0\0\0\0\0", 9)},
               {"expandable_segments", pt::boolean(true)},
               {"roundup_power2_divisions", pt::dict({{"1", pt::number(2)}, {"2", pt::number(4)}})}}),
      "max_split_size_mb:128,garbage_collection_threshold:0.5,expandable_segments:True,roundup_power2_divisions:[1:2,2:4],large_segment_"
      "size_mb:64")
      << "what was in force counts, and the text has what the dict lacks";
}

TEST(ReadSnapshot, Annotations) {
  Items snapshot = top({}, {pt::list({event("alloc", kBase, 1)})});
  const auto note = [](const char* stage, int64_t device) {
    return pt::dict({{"stage", pt::text(stage)},
                     {"name", pt::text("Optimizer.step#Adam.step")},
                     {"device", pt::number(device)},
                     {"time_us", pt::number(5)}});
  };
  snapshot.emplace_back("external_annotations", pt::list({note("START", 0), note("END", 0), note("START", 1)}));
  const Trace t = read_items(snapshot);
  ASSERT_EQ(t.annotations.size(), 2u);
  EXPECT_TRUE(t.annotations[0].begins);
  EXPECT_FALSE(t.annotations[1].begins);
  EXPECT_EQ(t.strings.text(t.annotations[1].name), "Optimizer.step#Adam.step");
}

TEST(ReadSnapshot, KeysTellTheRelease) {
  const auto release = [](const Items& of_event, const Items& of_top) {
    Items snapshot = top({}, {pt::list({event("alloc", kBase, 1, of_event)})});
    snapshot.insert(snapshot.end(), of_top.begin(), of_top.end());
    return read_items(snapshot).process.torch;
  };
  EXPECT_EQ(release({}, {}), "2.7 or older");
  EXPECT_EQ(release({{"compile_context", pt::text("N/A")}}, {}), "2.8 to 2.9");
  EXPECT_EQ(release({{"compile_context", pt::text("N/A")}, {"user_metadata", pt::text("")}}, {}), "2.10 to 2.11");
  EXPECT_EQ(release({{"user_metadata", pt::text("")}, {"pool_id", "K\x01K\x02\x86"}}, {}), "2.12 to 2.13");
  EXPECT_EQ(release({}, {{"host_traces", "]"}}), "2.14 or newer");
  EXPECT_EQ(release({}, {{"gpucast_torch", pt::text("2.6.0+cu124")}}), "2.6.0+cu124") << "of our own export";
}

TEST(ReadSnapshot, WhatIsNoSnapshot) {
  EXPECT_NE(std::string(snapshot_error({{"a", pt::number(1)}}).what()).find("no memory snapshot"), std::string::npos);
  EXPECT_NE(std::string(snapshot_error({{"segments", "]"}}).what()).find("no history"), std::string::npos);
  EXPECT_NE(std::string(snapshot_error(top({}, {"]", "]"})).what()).find("history is empty"), std::string::npos);
  EXPECT_NE(std::string(snapshot_error(top({}, {})).what()).find("history is empty"), std::string::npos);
  EXPECT_THROW(read_snapshot(pt::file(testing::TempDir(), pt::pickle(pt::number(1))), std::nullopt), Error);
  EXPECT_THROW(read_snapshot(pt::file(testing::TempDir(), pt::pickle("(t")), std::nullopt), Error);
  try {
    read_snapshot(pt::file(testing::TempDir(), pt::pickle(pt::list({segment(kBase, 512, {block("inactive", 512)})}))), std::nullopt);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the snapshot holds segments only, and no history");
    EXPECT_NE(error.hint.find("_record_memory_history"), std::string::npos);
  }
}

TEST(ReadSnapshot, BadEventsAndSegmentsAreLeftOut) {
  const int64_t too_much = int64_t{1} << 45;
  const Trace t = read_items(top({segment(kBase, 512, {block("inactive", 511)}), segment(kBase + 4096, 512, {block("inactive", 512)}),
                                  segment(kBase + 4096 + 256, 512, {block("inactive", 512)}),
                                  segment(kBase + 9000, 512, {block("inactive", 512, {{"address", pt::number(1)}})}), segment(-5, 512, {})},
                                 {pt::list({event("alloc", -1, 1), event("alloc", kBase, -1), event("alloc", kBase, too_much),
                                            event("alloc", kBase, 1), pt::dict({{"action", pt::text("alloc")}})})}));
  EXPECT_EQ(t.events.size(), 1u);
  EXPECT_EQ(t.problems[Problem::bad_event].count, 4);
  EXPECT_NE(t.problems[Problem::bad_event].first.find("byte "), std::string::npos);
  ASSERT_EQ(t.end_segments.size(), 1u);
  EXPECT_EQ(t.problems[Problem::bad_segment].count, 4);
}

// A list that is used several times in the file would count at each place, so a short file could contain any number of events.
TEST(ReadSnapshot, SharedPartsAreRefused) {
  const std::string one = event("alloc", kBase, 1) + "q\x07";
  const auto refused = [](const std::string& value) {
    try {
      read_snapshot(pt::file(testing::TempDir(), "\x80\x02" + value + "."), std::nullopt);
    } catch (const Error& error) {
      return std::string(error.what()).find("twice") != std::string::npos;
    }
    return false;
  };
  std::string memo;
  for (char i = 0; i < 7; ++i) memo += std::string("Nq") + i + "0";
  EXPECT_TRUE(refused(memo + pt::dict({{"device_traces", pt::list({"](" + one +
                                                                   "h\x07"
                                                                   "e"})}})));
  const std::string free_block = block("inactive", 512) + "q\x07";
  EXPECT_TRUE(refused(memo + pt::dict({{"segments", pt::list({segment(kBase, 1024, {free_block, "h\x07"})})},
                                       {"device_traces", pt::list({pt::list({event("alloc", kBase, 1)})})}})));
}

}  // namespace
}  // namespace gpucast
