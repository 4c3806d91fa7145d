#include "src/report/perfetto_export.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/attribution/attribute.h"
#include "src/base/bytes.h"
#include "src/lifetime/lifetime.h"

namespace gpucast {
namespace {

using ParsedJson = nlohmann::json;

constexpr uint64_t kPerfettoBase = 0x7f0000000000;

struct Made {
  Trace trace;

  void event(EventKind kind, uint64_t address, int64_t size, int64_t time_us = 0) {
    trace.events.push_back({kind, StackId(), address, size, 0, time_us});
    allocs += kind == EventKind::alloc ? 1 : 0;
    frees += kind == EventKind::free_requested ? 1 : 0;
  }
  void mark(MarkKind kind, MarkedPhase phase = MarkedPhase::unknown, ModuleId module = {}, const char* text = "") {
    Mark mark;
    mark.kind = kind;
    mark.phase = phase;
    mark.module = module;
    mark.sequence = ++marks;
    mark.allocs = allocs;
    mark.frees = frees;
    if (*text != '\0') mark.text = trace.strings.intern(text);
    trace.marks.push_back(mark);
  }
  ModuleId module(const char* name, ModuleId parent = {}) {
    trace.modules.push_back({parent, trace.strings.intern(name), trace.strings.intern("Linear")});
    return ModuleId(static_cast<int64_t>(trace.modules.size()) - 1);
  }

  int64_t allocs = 0, frees = 0, marks = 0;
};

ParsedJson exported(Trace trace) {
  const auto facts = std::make_shared<Facts>();
  facts->lifetimes = follow_blocks(trace.events, {}, &trace.problems);
  facts->attribution = attribute(trace, facts->lifetimes, &trace.problems);
  facts->trace = std::move(trace);
  Analysis analysis;
  analysis.facts = facts;
  std::ostringstream out;
  write_perfetto(analysis, out);
  return ParsedJson::parse(out.str());
}

std::vector<ParsedJson> of(const ParsedJson& file, const std::string& phase, const std::string& name = "") {
  std::vector<ParsedJson> out;
  for (const ParsedJson& event : file["traceEvents"]) {
    if (event["ph"] == phase && (name.empty() || event["name"] == name)) out.push_back(event);
  }
  return out;
}

std::vector<ParsedJson> blocks_of(const ParsedJson& file) {
  std::vector<ParsedJson> out = of(file, "X");
  std::erase_if(out, [](const ParsedJson& event) { return !event["args"].contains("size_bytes"); });
  return out;
}

TEST(PerfettoExport, NothingAtAll) {
  Trace nothing;  // not `{}`: GCC 12 warns that its strings are uninitialized
  const ParsedJson file = exported(std::move(nothing));
  for (const ParsedJson& event : of(file, "C")) {
    for (const auto& [key, value] : event["args"].items()) EXPECT_EQ(value, 0);
  }
  EXPECT_TRUE(of(file, "X").empty());
}

TEST(PerfettoExport, CountersPeakAndBlocks) {
  Made made;
  made.event(EventKind::segment_alloc, kPerfettoBase, 20 * kMiB);
  made.event(EventKind::alloc, kPerfettoBase, 5 * kMiB);
  made.event(EventKind::alloc, kPerfettoBase + 5 * kMiB, 3 * kMiB);
  made.event(EventKind::free_requested, kPerfettoBase, 5 * kMiB);
  made.event(EventKind::free_completed, kPerfettoBase, 5 * kMiB);
  made.event(EventKind::oom, 7, 64 * kMiB);
  const ParsedJson file = exported(std::move(made.trace));
  std::vector<int64_t> allocated;
  for (const ParsedJson& event : of(file, "C", "allocated")) allocated.push_back(event["args"]["bytes"]);
  EXPECT_EQ(allocated, (std::vector<int64_t>{0, 5 * kMiB, 8 * kMiB, 3 * kMiB}));
  EXPECT_EQ(of(file, "C", "reserved").back()["args"]["bytes"], 20 * kMiB);
  // Without times event i lies at i + 1 milliseconds.
  EXPECT_EQ(of(file, "i", "peak allocated 8.0 MiB").at(0)["ts"], 3000);
  EXPECT_EQ(of(file, "i", "out of memory: 64.0 MiB requested").at(0)["args"]["free_bytes"], 7);
  const std::vector<ParsedJson> blocks = blocks_of(file);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0]["dur"], 2000);
  EXPECT_EQ(blocks[0]["args"]["size_bytes"], 5 * kMiB);
  EXPECT_EQ(blocks[0]["args"]["free_event"], 3);
  EXPECT_TRUE(blocks[1]["args"]["free_event"].is_null());
  EXPECT_NE(blocks[0]["tid"], blocks[1]["tid"]) << "they live at the same time";
}

TEST(PerfettoExport, LanesAreUsedAgain) {
  Made made;
  made.event(EventKind::segment_alloc, kPerfettoBase, 20 * kMiB);
  for (int i = 0; i < 100; ++i) {
    made.event(EventKind::alloc, kPerfettoBase, 5 * kMiB);
    made.event(EventKind::free_requested, kPerfettoBase, 5 * kMiB);
    made.event(EventKind::free_completed, kPerfettoBase, 5 * kMiB);
  }
  const ParsedJson file = exported(std::move(made.trace));
  const std::vector<ParsedJson> blocks = blocks_of(file);
  ASSERT_EQ(blocks.size(), 100u);
  for (const ParsedJson& block : blocks) EXPECT_EQ(block["tid"], blocks[0]["tid"]);
}

TEST(PerfettoExport, ModulesNestAndNamesMayHoldAnything) {
  Made made;
  const ModuleId outer = made.module("a\"b\\c\n\t\x01\xff \xe2\x88\x82"), inner = made.module("fc", outer);
  made.event(EventKind::segment_alloc, kPerfettoBase, 20 * kMiB, 1000);
  made.mark(MarkKind::phase_begin, MarkedPhase::forward);
  made.mark(MarkKind::module_begin, MarkedPhase::unknown, outer);
  made.mark(MarkKind::module_begin, MarkedPhase::unknown, inner);
  made.event(EventKind::alloc, kPerfettoBase, 5 * kMiB, 1000);  // in the same microsecond
  made.mark(MarkKind::module_end, MarkedPhase::unknown, inner);
  made.mark(MarkKind::module_end, MarkedPhase::unknown, outer);
  made.mark(MarkKind::phase_end, MarkedPhase::forward);
  made.mark(MarkKind::phase_begin, MarkedPhase::backward);
  made.mark(MarkKind::module_backward, MarkedPhase::unknown, inner, "AddmmBackward0");
  made.event(EventKind::alloc, kPerfettoBase + 5 * kMiB, kMiB, 5000);
  made.mark(MarkKind::module_backward, MarkedPhase::unknown, outer, "ReluBackward0");
  made.event(EventKind::free_requested, kPerfettoBase, 5 * kMiB, 6000);
  made.mark(MarkKind::phase_end, MarkedPhase::backward);
  const ParsedJson file = exported(std::move(made.trace));

  // By track: the paths of nested slices.
  struct Open {
    std::string path;
    double end;
  };
  std::map<int, std::map<double, ParsedJson>> tracks;
  for (const ParsedJson& event : of(file, "X"))
    EXPECT_TRUE(tracks[event["tid"]].emplace(event["ts"], event).second) << "no two begin together";
  std::vector<std::string> paths;
  for (const auto& [thread, slices] : tracks) {
    std::vector<Open> open;
    for (const auto& [begin, event] : slices) {
      const double end = begin + event["dur"].get<double>();
      EXPECT_GT(end, begin);
      while (!open.empty() && open.back().end < begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LT(end, open.back().end);
      }
      open.push_back({(open.empty() ? "" : open.back().path) + "/" + event["name"].get<std::string>(), end});
      paths.push_back(open.back().path);
    }
  }
  const std::string top = "/a\"b\\c\n\t\x01\xef\xbf\xbd \xe2\x88\x82 (Linear)";
  const auto has = [&](const std::string& path) { return std::find(paths.begin(), paths.end(), path) != paths.end(); };
  EXPECT_TRUE(has(top + "/fc (Linear)"));
  EXPECT_TRUE(has(top + "/fc (Linear)/AddmmBackward0"));
  EXPECT_TRUE(has(top + "/ReluBackward0"));
  EXPECT_TRUE(has("/forward"));
  EXPECT_TRUE(has("/backward"));
}

}  // namespace
}  // namespace gpucast
