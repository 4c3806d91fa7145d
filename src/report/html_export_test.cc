#include "src/report/html_export.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gpucast/error.h"
#include "gpucast/step_time.h"
#include "src/base/alloc_conf.h"
#include "src/base/bytes.h"
#include "src/report/html_template.h"

namespace gpucast {
namespace {

constexpr uint64_t kHtmlBase = 0x7f0000000000;
constexpr const char* kEvil = "</script><img src=x onerror=alert(1)><!--<script>";

// A module's parameter that stays, and a block that is freed; every name is an attack.
Trace small() {
  Trace trace;
  trace.header.source = "vgpu";
  const StringId evil = trace.strings.intern(kEvil);
  trace.modules.push_back({ModuleId(), evil, evil});
  trace.frames.push_back({evil, evil, 7});
  trace.stack_frames.emplace_back(0);
  trace.stacks.push_back({0, 1});
  const auto event = [&](EventKind kind, uint64_t mib, int64_t size) {
    trace.events.push_back({kind, StackId(0), kHtmlBase + mib * static_cast<uint64_t>(kMiB), size, 0, 0});
  };
  event(EventKind::segment_alloc, 0, 20 * kMiB);
  event(EventKind::alloc, 0, 4 * kMiB);
  event(EventKind::alloc, 4, 2 * kMiB);
  event(EventKind::free_requested, 4, 2 * kMiB);
  event(EventKind::free_completed, 4, 2 * kMiB);
  trace.marks.push_back({MarkKind::tensors, MarkedPhase::unknown, ModuleId(), 1, 2, 1, 0, StringId()});
  trace.tensors.push_back({TensorKind::parameter, 1, kHtmlBase, 4 * kMiB, evil, ModuleId(0)});
  return trace;
}

Analysis analysis_of(Trace trace) {
  Analysis out;
  out.facts = follow(std::move(trace));
  out.gpu = find_gpu("a100-80");
  out.prediction.gpu_id = out.gpu.id;
  out.prediction.command = {"python", kEvil};
  return out;
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  return text.substr(from + begin.size(), text.find(end, from + begin.size()) - from - begin.size());
}

std::string unpacked(const std::string& base64) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    static const std::string kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t value = kLetters.find(c);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  std::string out(1 << 20, '\0');
  z_stream stream = {};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

template <class T>
std::vector<T> column(const std::string& payload, const nlohmann::json& directory, const std::string& name) {
  uint32_t length = 0;
  std::memcpy(&length, payload.data() + 4, sizeof length);
  for (const auto& entry : directory["columns"]) {
    if (entry["name"] != name) continue;
    std::vector<T> out(entry["count"].get<size_t>());
    std::memcpy(out.data(), payload.data() + 8 + length + entry["offset"].get<size_t>(), out.size() * sizeof(T));
    return out;
  }
  ADD_FAILURE() << "no column " << name;
  return {};
}

std::string html_written(const Analysis& analysis) {
  std::ostringstream out;
  write_html(analysis, out);
  return out.str();
}

TEST(HtmlExport, SaysHowToGetThePageWhereThereIsNone) {
  if (!html_template().empty()) GTEST_SKIP() << "built with the page";
  try {
    html_written(analysis_of(small()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.hint.find("npm"), std::string::npos);
  }
}

TEST(HtmlExport, NamesCannotEndTheScript) {
  if (html_template().empty()) GTEST_SKIP() << "built without the page";
  const std::string html = html_written(analysis_of(small()));
  EXPECT_EQ(html.find("<img"), std::string::npos);
  const std::string json = between(html, R"(<script id="prediction" type="application/json">)", "</script>");
  EXPECT_EQ(nlohmann::json::parse(json)["command"][1], kEvil);
}

TEST(HtmlExport, ColumnsHoldTheBlocks) {
  if (html_template().empty()) GTEST_SKIP() << "built without the page";
  const std::string payload =
      unpacked(between(html_written(analysis_of(small())), R"(<script id="data" type="application/octet-stream">)", "</script>"));
  ASSERT_EQ(payload.substr(0, 4), "GCR1");
  uint32_t length = 0;
  std::memcpy(&length, payload.data() + 4, sizeof length);
  const auto directory = nlohmann::json::parse(payload.substr(8, length));
  EXPECT_EQ(directory["events"], 5);
  EXPECT_EQ(directory["strings"], nlohmann::json::array({kEvil}));
  for (const auto& entry : directory["columns"]) EXPECT_EQ((8 + length + entry["offset"].get<size_t>()) % 8, 0U) << entry;

  EXPECT_EQ(column<uint32_t>(payload, directory, "block.birth"), (std::vector<uint32_t>{2, 1}));  // differences
  EXPECT_EQ(column<uint32_t>(payload, directory, "block.life"), (std::vector<uint32_t>{UINT32_MAX, 1}));
  EXPECT_EQ(column<uint32_t>(payload, directory, "block.wait"), (std::vector<uint32_t>{UINT32_MAX, 1}));
  EXPECT_EQ(column<uint32_t>(payload, directory, "block.address_high"), (std::vector<uint32_t>{0x7f00, 0x7f00}));
  EXPECT_EQ(column<double>(payload, directory, "kind.size"), (std::vector<double>{4.0 * kMiB, 2.0 * kMiB}));
  EXPECT_EQ(column<int32_t>(payload, directory, "kind.tensor"), (std::vector<int32_t>{0, -1}));
  EXPECT_EQ(column<int32_t>(payload, directory, "kind.module")[0], 0);
  const auto categories = column<uint8_t>(payload, directory, "kind.category");
  EXPECT_EQ(directory["categories"][categories[0]], "parameters");
  EXPECT_EQ(column<double>(payload, directory, "segment.size"), (std::vector<double>{20.0 * kMiB}));
  EXPECT_EQ(column<int32_t>(payload, directory, "frame.line"), (std::vector<int32_t>{7}));
}

// The page's data of `analysis`, without the prediction.
struct Payload {
  std::string bytes;
  nlohmann::json directory;
  explicit Payload(const Analysis& analysis)
      : bytes(unpacked(between(html_written(analysis), R"(<script id="data" type="application/octet-stream">)", "</script>"))) {
    uint32_t length = 0;
    std::memcpy(&length, bytes.data() + 4, sizeof length);
    directory = nlohmann::json::parse(bytes.substr(8, length));
  }
  template <class T>
  std::vector<T> of(const std::string& name) const {
    return column<T>(bytes, directory, name);
  }
};

// Same, with an observed step: three kernels on two streams between marks 2 and 4; events are 10 us apart.
Trace with_step() {
  Trace trace = small();
  int64_t time_us = 1'000'000;
  for (AllocatorEvent& event : trace.events) event.time_us = time_us += 10;
  const auto mark = [&](MarkKind kind, int64_t sequence, int64_t allocs, int64_t frees) {
    Mark made{kind, MarkedPhase::forward, ModuleId(0), sequence, allocs, frees, 0, StringId()};
    made.time_us = 1'000'000 + sequence;
    trace.marks.push_back(made);
  };
  mark(MarkKind::phase_begin, 2, 0, 0);
  mark(MarkKind::module_begin, 3, 1, 0);
  mark(MarkKind::module_end, 4, 2, 1);
  trace.observed.step = 2;
  trace.observed.unix_ns = trace.observed.clock_unix_ns = 1'000'000'000;
  trace.observed.first_mark = 2;
  trace.observed.last_mark = 5;
  const auto kernel = [&](int64_t behind_mark, int64_t at_us, uint64_t stream, uint32_t blocks) {
    Work work;
    work.name = trace.strings.intern(kEvil);
    work.grid = {blocks, 1, 1};
    work.block = {128, 1, 1};
    work.stream = stream;
    work.time_ns = at_us * 1000;
    work.mark = behind_mark;
    trace.observed.work.push_back(work);
  };
  kernel(2, 55, 0, 1000);  // by the clock after all events, but the next mark comes after the second event
  kernel(3, 35, 7, 2000);  // between the third event and the fourth
  kernel(4, 35, 0, 1);     // by the mark after the fourth event
  return trace;
}

TEST(HtmlExport, TheObservedStepIsPartOfTheHistory) {
  if (html_template().empty()) GTEST_SKIP() << "built without the page";
  const Payload page(analysis_of(with_step()));
  EXPECT_EQ(page.directory["step"]["number"], 2);
  EXPECT_EQ(page.of<uint32_t>("work.position"), (std::vector<uint32_t>{2, 3, 4}));
  EXPECT_EQ(page.of<uint32_t>("work.stream"), (std::vector<uint32_t>{0, 1, 0}));
  EXPECT_EQ(page.of<int32_t>("work.module"), (std::vector<int32_t>{-1, 0, -1}));
  const auto names = page.directory["step"]["names"].get<std::vector<std::string>>();
  for (const uint32_t name : page.of<uint32_t>("work.name")) EXPECT_EQ(names.at(name), kEvil);
  for (const uint32_t kind : page.of<uint32_t>("work.kind")) EXPECT_EQ(names.at(kind), "unknown");
  for (const uint32_t phase : page.of<uint32_t>("work.phase")) EXPECT_EQ(names.at(phase), "forward");
  const auto durations = page.of<double>("work.duration");
  EXPECT_GT(durations[0], durations[2]);
  EXPECT_GT(durations[1], durations[0]);
  const auto starts = page.of<double>("work.start");
  EXPECT_GE(starts[2], starts[0] + durations[0]) << "one stream, one after the other";
}

// Same, with a loader: two workers that make a batch in 40 ms each, and a batch that the step gets.
Trace with_loader() {
  Trace trace = with_step();
  Mark end{MarkKind::phase_end, MarkedPhase::forward, ModuleId(0), 5, 2, 1, 0, StringId()};
  end.time_us = 1'000'200;
  trace.marks.push_back(end);
  LoaderRecord& loader = trace.loader;
  loader.kind = LoaderKind::dataloader;
  loader.dataset = kEvil;
  loader.workers = loader.prefetch_factor = 2;
  loader.batch_size = 32;
  loader.cores = 8;
  loader.taken = {{1'000'050, 100, 10}};
  for (const int64_t workers : {0, 1, 2}) {
    LoaderRun run;
    run.workers = workers;
    run.batches = 20;
    run.fetch_ns = run.cpu_ns = 40e6;
    run.period_ns = run.fetch_ns / static_cast<double>(std::max<int64_t>(1, workers));
    run.stages_ns = {{"transform", 10e6}, {"decode", 25e6}};
    loader.runs.push_back(run);
  }
  return trace;
}

// Other programs had the cores while the loader was measured: the wait for a CPU is in the stages, not in the whole.
TEST(HtmlExport, ABatchsStagesAreNoLongerThanTheBatch) {
  for (const double queue_ms : {0.0, 10.0, 30.0, 39.0}) {
    for (const double cpu_speed : {1.0, 5.0}) {
      Trace trace = with_loader();
      for (LoaderRun& run : trace.loader.runs) {
        run.queue_ns = queue_ms * 1e6;
        run.cpu_ns = run.fetch_ns - run.queue_ns;
      }
      const Analysis analysis = analysis_of(std::move(trace));
      StepTimeOptions options;
      options.gpus = {analysis.gpu};
      options.cpu_speed = cpu_speed;
      const LoaderFigures loader = *step_times(*analysis.facts, options).loader;
      double sum_ns = 0;
      for (const auto& [name, ns] : loader.stages_ns) sum_ns += ns;
      EXPECT_NEAR(sum_ns, loader.batch_ns, 1) << queue_ms << " " << cpu_speed;
    }
  }
}

TEST(HtmlExport, BothPathsOfAStepAreThoseOfTime) {
  if (html_template().empty()) GTEST_SKIP() << "built without the page";
  const Analysis analysis = analysis_of(with_loader());
  const nlohmann::json time = Payload(analysis).directory["step"]["time"];
  StepTimeOptions options;
  options.gpus = {analysis.gpu};
  const StepTimes times = step_times(*analysis.facts, options);
  const CardTime& card = times.cards.front();
  ASSERT_TRUE(card.loader);
  EXPECT_EQ(time["bound"], "loader");
  EXPECT_EQ(time["step"]["low_ns"], card.step.low_ns);
  EXPECT_EQ(time["step"]["expected_ns"], card.step.expected_ns);
  EXPECT_EQ(time["step"]["high_ns"], card.step.high_ns);
  EXPECT_EQ(time["gpu_ns"], card.gpu_ns);
  EXPECT_EQ(time["host_ns"], card.host_ns);
  const std::string text = step_times_text(times, false);
  EXPECT_NE(text.find(time["bound_words"].get<std::string>()), std::string::npos) << text;
  EXPECT_NE(text.find(time["interval_words"].get<std::string>()), std::string::npos) << text;
  EXPECT_EQ(time["loader_words"][0], std::string("DataLoader of ") + kEvil + ": batches of 32, 2 workers, prefetch 2");
  EXPECT_EQ(time["loader_words"][1], "a batch takes one process 40.0 ms: decode 25.0 ms, transform 10.0 ms, dataset 5.00 ms");
  const nlohmann::json& loader = time["loader"];
  EXPECT_EQ(loader["workers"], 2);
  EXPECT_EQ(loader["fed_ns"], card.loader->now.batch.expected_ns) << "one batch a step";
  EXPECT_EQ(loader["wait_share"], card.loader->now.wait_share);
  EXPECT_EQ(loader["stages"][0], nlohmann::json({{"name", "decode"}, {"ns", 25e6}}));
  ASSERT_EQ(loader["choices"].size(), card.loader->choices.size());
  for (size_t i = 0; i < loader["choices"].size(); ++i) {
    EXPECT_EQ(loader["choices"][i]["workers"], card.loader->choices[i].workers);
    EXPECT_EQ(loader["choices"][i]["step"]["expected_ns"], card.loader->choices[i].step.expected_ns);
  }
}

TEST(HtmlExport, WithoutALoaderTheStepIsStillBound) {
  if (html_template().empty()) GTEST_SKIP() << "built without the page";
  const Analysis analysis = analysis_of(with_step());
  const nlohmann::json time = Payload(analysis).directory["step"]["time"];
  EXPECT_EQ(time["bound"], "host");
  EXPECT_GT(time["host_ns"], time["gpu_ns"]);
  EXPECT_GT(time["gpu_ns"], 0);
  EXPECT_TRUE(time["loader"].is_null());
  EXPECT_TRUE(time["loader_words"].empty());
  EXPECT_TRUE(time["notes"].empty()) << "an older capture has no record of a loader";
  Trace trace = with_step();
  trace.loader.kind = LoaderKind::dali;
  EXPECT_EQ(Payload(analysis_of(std::move(trace))).directory["step"]["time"]["notes"].size(), 1U);
}

TEST(HtmlExport, WithoutAStepOrRatesThereIsNoTime) {
  if (html_template().empty()) GTEST_SKIP() << "built without the page";
  EXPECT_FALSE(Payload(analysis_of(small())).directory.contains("step"));
  Analysis other_card = analysis_of(with_step());
  other_card.prediction.gpu_id = other_card.gpu.id = "a card of my own";
  other_card.gpu.bandwidth_bytes_per_s = 0;
  EXPECT_FALSE(Payload(other_card).directory.contains("step"));
}

TEST(HtmlExport, AnEmptyHistoryIsNoProblem) {
  if (html_template().empty()) GTEST_SKIP() << "built without the page";
  EXPECT_NE(html_written(analysis_of({})).find("</html>"), std::string::npos);
}

}  // namespace
}  // namespace gpucast
