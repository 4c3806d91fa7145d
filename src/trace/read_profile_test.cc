#include "src/trace/read_profile.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "gpucast/error.h"
#include "src/base/test_gzip.h"

namespace gpucast {
namespace {

// ---- files ------------------------------------------------------------------------------------------------------------------

std::string write_profile(const std::string& text) {
  const std::string path = testing::TempDir() + "read_profile_test." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

ProfileTrace read_profile_text(const std::string& text) { return read_profile(write_profile(text)); }

// A trace with `events`, in the profiler's layout.
std::string trace_of(const std::vector<std::string>& events, const std::string& before = R"("schemaVersion": 1,)",
                     const std::string& after = "") {
  std::string text = "\n{\n  " + before + "\n  \"traceEvents\": [";
  for (size_t i = 0; i < events.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + events[i];
  return text + "\n  ]" + after + "\n}";
}

std::string profile_error(const std::string& text) {
  try {
    read_profile_text(text);
  } catch (const Error& error) {
    return fmt::format("{} | {} | {}", error.what(), error.where, error.hint);
  }
  return "no error";
}

// ---- events -----------------------------------------------------------------------------------------------------------------

std::string span(const std::string& cat, const std::string& name, const std::string& ts, const std::string& dur,
                 const std::string& args = "") {
  return fmt::format(
      R"({{
    "ph": "X", "cat": "{}", "name": "{}", "pid": 7, "tid": 8,
    "ts": {}, "dur": {},
    "args": {{
      {}
    }}
  }})",
      cat, name, ts, dur, args);
}

std::string op(const std::string& name, const std::string& ts = "10.5", const std::string& args = "") {
  return span("cpu_op", name, ts, "2.25", args);
}

std::string memory(const std::string& ts, const std::string& args) {
  return fmt::format(
      R"({{
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",
    "pid": 7, "tid": 8,
    "ts": {},
    "args": {{
      {}
    }}
  }})",
      ts, args);
}

// The whole content of a trace as a text, to compare two traces.
std::string describe(const ProfileTrace& t) {
  std::string out = fmt::format("{} events, {} kernels, base {}, flags {}{}{}, gpucast '{}'\n", t.events_read, t.cuda_kernels, t.base_ns,
                                t.profile_memory, t.record_shapes, t.with_stack, t.gpucast_json);
  for (const ProfileThread& thread : t.threads) out += fmt::format("thread {} {}\n", thread.pid, thread.tid);
  for (const ProfileSpan& s : t.spans) {
    out += fmt::format("span {} {} {} {} '{}' '{}' '{}' '{}' '{}' {} {} {} {} {}\n", s.begin_ns, s.end_ns, s.order, s.sequence_number,
                       t.strings.text(s.name), t.strings.text(s.dims), t.strings.text(s.types), t.strings.text(s.strides),
                       t.strings.text(s.concrete), s.python_id, s.python_parent, s.module_id, s.thread, static_cast<int>(s.kind));
  }
  for (const ProfileMemory& m : t.memory) {
    out += fmt::format("memory {} {} {:#x} {} {} {} {} {} {}\n", m.time_ns, m.order, m.address, m.bytes, m.total_allocated_bytes,
                       m.total_reserved_bytes, m.thread, m.device_type, m.device_id);
  }
  for (const ProblemCount& problem : t.problems.rows) out += fmt::format("problem {} '{}'\n", problem.count, problem.first);
  return out;
}

int64_t bad(const ProfileTrace& t) { return t.problems[ProfileProblem::bad_event].count; }
int64_t incomplete(const ProfileTrace& t) { return t.problems[ProfileProblem::incomplete_event].count; }
int64_t truncated(const ProfileTrace& t) { return t.problems[ProfileProblem::truncated_file].count; }

std::vector<std::string> names(const ProfileTrace& t) {
  std::vector<std::string> out;
  for (const ProfileSpan& s : t.spans) out.emplace_back(t.strings.text(s.name));
  return out;
}

using Names = std::vector<std::string>;

// ---- what is kept -------------------------------------------------------------------------------------------------------------

TEST(ReadProfile, EveryKindOfEvent) {
  const ProfileTrace t = read_profile_text(trace_of(
      {span(
           "cpu_op", "aten::conv2d", "4427620945618.563", "34.982",
           R"("External id": 1,"Sequence number": 12, "Fwd thread id": 0, "Concrete Inputs": ["", "[1, 1]", "\"x\""], "Input type": ["float", "ScalarList", ""], )"
           R"("Input Strides": [[147, 49, 7, 1], [], []], "Input Dims": [[64, 3, 7, 7], [], []], "Ev Idx": 5)"),
       span("user_annotation", "Optimizer.step#Adam.step", "4427620945600", "100"),
       span("python_function", "nn.Module: Conv2d_3", "4427620945610.1", "50.5",
            R"("Python parent id": null, "Python id": 1, "Python module id": 3, "Ev Idx": 17)"),
       span("python_function", "prof.py(7): <module>", "4427620945609", "90", R"("Python parent id": 1, "Python id": 2, "Ev Idx": 18)"),
       memory(
           "4427620945620.001",
           R"("Total Reserved": 300, "Total Allocated": 200, "Bytes": -100, "Addr": 93943420811072, "Device Id": -1, "Device Type": 0, "Ev Idx": 9)"),
       span("kernel", "gemm", "1", "2", R"("grid": [4, 1, 1])"), span("gpu_memcpy", "Memcpy HtoD", "1", "2"),
       span("gpu_memset", "Memset", "1", "2"), span("cuda_runtime", "cudaLaunchKernel", "1", "2"),
       R"({"ph": "s", "id": 72, "pid": 7, "tid": 7, "ts": 1.0, "cat": "fwdbwd", "name": "fwdbwd"})",
       R"({"name": "process_name", "ph": "M", "ts": 1.5, "pid": 7, "tid": 0, "args": {"name": "python"}})",
       R"({"ph": "X", "cat": "Trace", "ts": 1, "dur": 9, "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler", "args": {"Op count": 0}})"}));
  EXPECT_EQ(t.events_read, 12);
  EXPECT_EQ(t.cuda_kernels, 3);
  ASSERT_EQ(t.spans.size(), 4u);
  EXPECT_EQ(names(t), (Names{"Optimizer.step#Adam.step", "prof.py(7): <module>", "Conv2d_3", "aten::conv2d"}));
  EXPECT_EQ(t.base_ns, 4427620945600000);
  EXPECT_EQ(t.spans[0].kind, SpanKind::annotation);
  EXPECT_EQ(t.spans[0].order, 1);  // no "Ev Idx": the position in the file
  EXPECT_EQ(t.spans[1].kind, SpanKind::function);
  EXPECT_EQ(t.spans[1].python_parent, 1);
  EXPECT_EQ(t.spans[2].kind, SpanKind::module);
  EXPECT_EQ(t.spans[2].python_id, 1);
  EXPECT_EQ(t.spans[2].python_parent, -1);
  EXPECT_EQ(t.spans[2].module_id, 3);
  const ProfileSpan& conv = t.spans[3];
  EXPECT_EQ(conv.kind, SpanKind::op);
  EXPECT_EQ(conv.begin_ns, 18563);
  EXPECT_EQ(conv.end_ns, 18563 + 34982);
  EXPECT_EQ(conv.order, 5);
  EXPECT_EQ(conv.sequence_number, 12);
  EXPECT_EQ(t.strings.text(conv.dims), "[[64, 3, 7, 7], [], []]");
  EXPECT_EQ(t.strings.text(conv.types), R"(["float", "ScalarList", ""])");
  EXPECT_EQ(t.strings.text(conv.strides), "[[147, 49, 7, 1], [], []]");
  EXPECT_EQ(t.strings.text(conv.concrete), R"(["", "[1, 1]", "\"x\""])");
  ASSERT_EQ(t.memory.size(), 1u);
  EXPECT_EQ(t.memory[0].time_ns, 20001);
  EXPECT_EQ(t.memory[0].address, 93943420811072u);
  EXPECT_EQ(t.memory[0].bytes, -100);
  EXPECT_EQ(t.memory[0].total_allocated_bytes, 200);
  EXPECT_EQ(t.memory[0].total_reserved_bytes, 300);
  EXPECT_EQ(t.memory[0].device_type, 0);
  EXPECT_EQ(t.memory[0].device_id, -1);
  EXPECT_EQ(t.memory[0].order, 9);
  ASSERT_EQ(t.threads.size(), 1u);
  EXPECT_EQ(t.threads[0].pid, 7);
  EXPECT_EQ(t.threads[0].tid, 8);
  EXPECT_EQ(bad(t) + incomplete(t) + truncated(t), 0);
}

TEST(ReadProfile, TopLevelKeysBeforeAndBehind) {
  const std::string before =
      R"("metadata": {"note": "a \"brace }", "list": [1, {"traceEvents": [2]}]}, "record_shapes": 1, "profile_memory": true,)";
  const std::string after =
      R"(, "with_stack": 0, "gpucast": {"steps": 3, "text": "}]"}, "traceName": "x.json", "baseTimeNanoseconds": 1790857026000000000)";
  const ProfileTrace t = read_profile_text(trace_of({op("aten::add")}, before, after));
  EXPECT_TRUE(t.record_shapes);
  EXPECT_TRUE(t.profile_memory);
  EXPECT_FALSE(t.with_stack);
  EXPECT_EQ(t.gpucast_json, R"({"steps": 3, "text": "}]"})");
  EXPECT_EQ(t.spans.size(), 1u);
  EXPECT_EQ(bad(t) + truncated(t), 0);
}

// Releases that do not write their switches: the reader finds them from the events.
TEST(ReadProfile, SwitchesFromEvents) {
  ProfileTrace t = read_profile_text(trace_of({op("a")}));
  EXPECT_FALSE(t.record_shapes || t.profile_memory || t.with_stack);
  t = read_profile_text(trace_of({op("a", "1", R"("Input Dims": [[1]], "Call stack": "a.py(1): f")"), memory("2", R"("Bytes": 8)")}));
  EXPECT_TRUE(t.record_shapes && t.profile_memory && t.with_stack);
}

TEST(ReadProfile, BareList) {
  ProfileTrace t = read_profile_text("[" + op("a") + "," + op("b", "11") + "]\n");
  EXPECT_EQ(names(t), (Names{"a", "b"}));
  EXPECT_EQ(bad(t) + truncated(t), 0);
  t = read_profile_text("\xef\xbb\xbf [\n" + op("a") + ",\n" + op("b", "11"));
  EXPECT_EQ(names(t), (Names{"a", "b"}));
  EXPECT_EQ(truncated(t), 1);
  EXPECT_EQ(read_profile_text("[]").spans.size(), 0u);
  EXPECT_EQ(read_profile_text(R"({"traceEvents": []})").events_read, 0);
}

// A trace of 2021: other names of categories and arguments, thread ids as text, no addresses, annotations among the operators.
TEST(ReadProfile, OldReleases) {
  const ProfileTrace t = read_profile_text(trace_of(
      {R"({"ph": "X", "cat": "Operator", "name": "aten::zero_", "pid": 25738, "tid": "25738", "ts": 1623142624457419, "dur": 27, "args":
          {"Device": 25738, "External id": 21711, "Trace name": "PyTorch Profiler", "Input dims": [[1000]], "Call stack": "a.py(216): zero_grad;b.py(49): <module>",
           "Input type": ["float"], "Fwd thread id": 0, "Sequence number": "1958"}})",
       R"({"ph": "X", "cat": "Operator", "name": "Optimizer.step#SGD.step", "pid": 25738, "tid": "25738", "ts": 1623142624457500, "dur": 2, "args": {"Device": 1}})",
       R"({"ph": "i", "s": "t", "name": "[memory]", "pid": 25738, "tid": 25738, "ts": 1623142624509319, "args": {"Device Type": 1, "Device Id": 0, "Bytes": "-512"}})",
       R"({"ph": "I", "s": "t", "name": "[memory]", "pid": 25738, "tid": 25738, "ts": "1623142624509320.5", "args": {"Device Type": 0, "Device Id": -1, "Bytes": 64, "Addr": "0x7f0000000010"}})",
       R"({"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 1623142624525724, "dur": 1, "args": {"blocks per SM": inf, "grid": [4, 1, 1]}})",
       R"({"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 1623142624633484})"}));
  EXPECT_EQ(bad(t) + incomplete(t) + truncated(t), 0);
  EXPECT_EQ(t.events_read, 6);
  EXPECT_EQ(t.cuda_kernels, 1);
  EXPECT_EQ(t.threads.size(), 1u);
  ASSERT_EQ(t.spans.size(), 2u);
  EXPECT_EQ(t.base_ns, 1623142624457419000);
  EXPECT_EQ(t.spans[0].sequence_number, 1958);
  EXPECT_EQ(t.strings.text(t.spans[0].dims), "[[1000]]");
  EXPECT_EQ(t.spans[1].kind, SpanKind::annotation);
  ASSERT_EQ(t.memory.size(), 2u);
  EXPECT_EQ(t.memory[0].bytes, -512);
  EXPECT_EQ(t.memory[0].address, 0u);
  EXPECT_EQ(t.memory[0].device_type, 1);
  EXPECT_EQ(t.memory[1].time_ns - t.memory[0].time_ns, 1500);
  EXPECT_EQ(t.memory[1].address, 0x7f0000000010u);
}

// The format of json.dump(sort_keys=True), and a format without spaces.
TEST(ReadProfile, AnyOrderOfKeys) {
  const ProfileTrace t = read_profile_text(
      R"({"traceEvents":[{"args":{"Ev Idx":3,"Input Dims":[[2]],"new":{"a":[{}]}},"cat":"cpu_op","dur":1,"name":"a","ph":"X","pid":1,"tid":2,"ts":5},{}]})");
  EXPECT_EQ(t.events_read, 2);
  ASSERT_EQ(t.spans.size(), 1u);
  EXPECT_EQ(t.spans[0].order, 3);
  EXPECT_EQ(t.strings.text(t.spans[0].dims), "[[2]]");
}

TEST(ReadProfile, SortedByBeginLongerFirst) {
  const ProfileTrace t = read_profile_text(trace_of(
      {span("cpu_op", "d", "20", "1"), span("cpu_op", "e", "30", "1"), span("cpu_op", "b", "10", "5"), span("cpu_op", "f", "30", "0"),
       span("cpu_op", "a", "10", "6"), span("cpu_op", "c", "10", "5", R"("Ev Idx": 90)"), memory("40", R"("Bytes": 3, "Ev Idx": 8)"),
       memory("40", R"("Bytes": 2, "Ev Idx": 7)"), memory("39.999", R"("Bytes": 1, "Ev Idx": 9)")}));
  EXPECT_EQ(names(t), (Names{"a", "b", "c", "d", "e", "f"}));
  EXPECT_EQ(t.memory[0].bytes, 1);
  EXPECT_EQ(t.memory[1].bytes, 2);
  EXPECT_EQ(t.memory[2].bytes, 3);
  EXPECT_EQ(t.spans[0].begin_ns, 0);
}

TEST(ReadProfile, ThreadsAndProcesses) {
  const auto at = [](int pid, int tid) {
    return fmt::format(R"({{"ph": "X", "cat": "cpu_op", "name": "a", "pid": {}, "tid": {}, "ts": 1, "dur": 1}})", pid, tid);
  };
  const ProfileTrace t = read_profile_text(trace_of({at(1, 2), at(2, 1), at(1, 2), at(-1, 2)}));
  ASSERT_EQ(t.threads.size(), 3u);
  EXPECT_EQ(t.spans[0].thread, t.spans[2].thread);
  EXPECT_EQ(t.threads[t.spans[1].thread].pid, 2);
  EXPECT_EQ(t.threads[t.spans[3].thread].pid, -1);
}

TEST(ReadProfile, StringsAsReleasesWriteThem) {
  // Escapes; a Windows path whose backslashes are not escaped; source text with a line break; bytes that are not UTF-8.
  const ProfileTrace t =
      read_profile_text(trace_of({span("python_function", R"(a\"b\\c\u00e9\ud83d\ude00\/)", "1", "1"),
                                  span("python_function", R"(torch\cuda\__init__.py(219): f)", "2", "1"),
                                  span("python_function", "line 1\nline 2\x01", "3", "1"), span("python_function", "\xff\xfe", "4", "1")}));
  EXPECT_EQ(bad(t), 0);
  EXPECT_EQ(names(t), (Names{"a\"b\\c\u00e9\U0001F600/", R"(torch\cuda\__init__.py(219): f)", "line 1\nline 2\x01", "\xff\xfe"}));
}

// ---- what is wrong --------------------------------------------------------------------------------------------------------------

TEST(ReadProfile, UnescapedQuotes) {
  const std::vector<std::string> events = {op("a", "1"),
                                           span("python_function", R"({"device": "cpu", "dtype": "float32"}(12): run)", "2", "1"),
                                           span("python_function", R"(x = lib("y)", "3", "1"),  // an odd number of quotes
                                           op("b", "4"),
                                           op("bad_concrete", "5", R"("Concrete Inputs": ["", ""einsum"", ""])"),
                                           op("c", "6"),
                                           memory("7", R"("Bytes": 8)"),
                                           span("python_function", R"(")", "8", "1")};  // and the last of the list
  const ProfileTrace t = read_profile_text(trace_of(events, R"("schemaVersion": 1,)", R"(, "with_stack": 1)"));
  EXPECT_EQ(names(t), (Names{"a", "b", "c"}));
  EXPECT_EQ(t.memory.size(), 1u);
  EXPECT_EQ(bad(t), 4);
  EXPECT_EQ(t.events_read, 4);
  EXPECT_EQ(truncated(t), 0);
  EXPECT_TRUE(t.with_stack);
  // The message has the second event and its first byte.
  const std::string text = trace_of(events);
  EXPECT_EQ(t.problems[ProfileProblem::bad_event].first,
            fmt::format("event 2, byte {}: ',' or '}}' expected at byte {}",
                        text.find("{\n    \"ph\": \"X\", \"cat\": \"python_function\""), text.find("device\"")));
}

TEST(ReadProfile, DamageBetweenAndInsideEvents) {
  ProfileTrace t = read_profile_text(trace_of({op("a", "1"), "garbage", op("b", "2"), "12", op("c", "3")}));
  EXPECT_EQ(names(t), (Names{"a", "b", "c"}));
  EXPECT_EQ(bad(t), 2);
  // An extra bracket, a missing bracket, a missing quote, a key without a value.
  for (const std::string& broken :
       {op("x") + "}", op("x", "1", R"("Input Dims": [[1], [2])"), op("x", "1", R"("Call stack": "a)"), op("x", "1", R"("a":)"),
        op("x", "1", R"("stack": ["a" "b"])"), std::string(R"({"ph": "X", "na)"), std::string("{")}) {
    t = read_profile_text(trace_of({op("a", "1"), broken, op("b", "20"), op("c", "30")}));
    Names found = names(t);
    found.erase(std::remove(found.begin(), found.end(), "x"), found.end());
    EXPECT_EQ(found, (Names{"a", "b", "c"})) << broken;
    EXPECT_EQ(bad(t), 1) << broken;
    EXPECT_EQ(truncated(t), 0) << broken;
  }
}

// A bad event that contains a list of objects may look like the end of the events. The reader still goes on.
TEST(ReadProfile, NestedListInABadEvent) {
  const std::string broken = op("x", "1", R"("a": "b"c", "stack": [{"name": "f"}, {"name": "g"}])");
  for (const std::string& text : {trace_of({op("a", "1"), broken, op("b", "20")}, "", R"(, "gpucast": 1)"),
                                  "[" + op("a", "1") + "," + broken + "," + op("b", "20") + "]"}) {
    const ProfileTrace t = read_profile_text(text);
    EXPECT_EQ(names(t), (Names{"a", "b"}));
    EXPECT_GE(bad(t), 1);
    EXPECT_EQ(truncated(t), 0);
  }
}

TEST(ReadProfile, DamageOutsideOfTheEvents) {
  ProfileTrace t = read_profile_text(trace_of({op("a")}, R"("metadata": "x"y",)"));
  EXPECT_EQ(names(t), (Names{"a"}));
  EXPECT_EQ(bad(t), 1);
  EXPECT_NE(t.problems[ProfileProblem::bad_event].first.find("outside of the events"), std::string::npos);
  t = read_profile_text(trace_of({op("a")}, "", R"(, "traceName": "x"y")"));
  EXPECT_EQ(names(t), (Names{"a"}));
  EXPECT_EQ(bad(t), 1);
}

TEST(ReadProfile, IncompleteEvents) {
  const ProfileTrace t = read_profile_text(trace_of(
      {op("a", "1"), R"({"ph": "X", "cat": "cpu_op", "name": "no time", "pid": 1, "tid": 1, "dur": 2})",
       R"({"ph": "X", "cat": "cpu_op", "name": "no duration", "pid": 1, "tid": 1, "ts": 2})",
       span("cpu_op", "negative duration", "1", "-1"), span("cpu_op", "time is text", "\"soon\"", "1"),
       span("cpu_op", "far away", "1e300", "1"), R"({"ph": "X", "cat": "cpu_op", "name": "no thread", "pid": 1, "ts": 2, "dur": 1})",
       R"({"ph": "X", "cat": "cpu_op", "name": "thread is text", "pid": "CPU functions", "tid": 1, "ts": 2, "dur": 1})",
       R"({"ph": "X", "cat": "cpu_op", "name": 17, "pid": 1, "tid": 1, "ts": 2, "dur": 1})", memory("1", R"("Addr": 5)"),
       memory("1", R"("Bytes": 99999999999999999)"), memory("1", R"("Bytes": 1, "Addr": "here")"), memory("null", R"("Bytes": 1)")}));
  EXPECT_EQ(names(t), (Names{"a"}));
  EXPECT_EQ(t.memory.size(), 0u);
  EXPECT_EQ(t.events_read, 13);
  EXPECT_EQ(incomplete(t), 12);
  EXPECT_EQ(t.problems[ProfileProblem::incomplete_event].first.substr(0, 8), "event 2,");
  EXPECT_NE(t.problems[ProfileProblem::incomplete_event].first.find("\"ts\""), std::string::npos);
}

TEST(ReadProfile, TruncatedAnywhere) {
  std::vector<std::string> events;
  for (int i = 0; i < 6; ++i)
    events.push_back(op(fmt::format("op{}", i), fmt::format("{}", i + 1), R"("Input Dims": [[1, 2]], "Call stack": "a;b")"));
  const std::string text = trace_of(events, "", R"(, "gpucast": {"a": 1}, "with_stack": 1)");
  const size_t begin = text.find('[') + 1;
  for (size_t size = begin; size + 1 < text.size(); ++size) {
    const ProfileTrace t = read_profile(write_profile(text.substr(0, size)), 4096);
    // Every complete event, and no other.
    int64_t whole = 0;
    for (const std::string& event : events) whole += text.find(event) + event.size() <= size ? 1 : 0;
    ASSERT_EQ(t.events_read, whole) << size;
    ASSERT_EQ(t.spans.size(), static_cast<size_t>(whole)) << size;
    ASSERT_EQ(truncated(t), 1) << size;
    ASSERT_EQ(bad(t), 0) << size << t.problems[ProfileProblem::bad_event].first;
  }
  EXPECT_EQ(truncated(read_profile_text(text)), 0);
  EXPECT_NE(profile_error(text.substr(0, begin / 2)).find("ends before its \"traceEvents\""), std::string::npos);
}

TEST(ReadProfile, Gzip) {
  std::vector<std::string> events;
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) events.push_back(op(fmt::format("op{}", random()), fmt::format("{}.{:03}", i, random() % 1000)));
  const std::string text = trace_of(events);
  const std::string packed = gzip(text);
  EXPECT_EQ(describe(read_profile_text(packed)), describe(read_profile_text(text)));
  EXPECT_EQ(describe(read_profile_text(gzip(text.substr(0, 5000)) + gzip(text.substr(5000)))),
            describe(read_profile_text(text)));  // two members

  ProfileTrace t = read_profile_text(packed.substr(0, packed.size() / 2));
  EXPECT_GT(t.spans.size(), 500u);
  EXPECT_LT(t.spans.size(), 1500u);
  EXPECT_EQ(truncated(t), 1);
  EXPECT_NE(t.problems[ProfileProblem::truncated_file].first.find("the compressed file ends in the middle"), std::string::npos);
  t = read_profile_text(packed.substr(0, packed.size() - 4));  // only the check sum is cut off
  EXPECT_EQ(t.spans.size(), 2000u);
  EXPECT_EQ(truncated(t), 1);

  std::string damaged = packed;
  damaged[packed.size() - 6] ^= 1;  // of the check sum
  t = read_profile_text(damaged);
  EXPECT_EQ(t.spans.size(), 2000u);
  EXPECT_NE(t.problems[ProfileProblem::truncated_file].first.find("damaged"), std::string::npos);
  t = read_profile_text(gzip(trace_of({op("a"), "{]", op("b", "20")})));
  EXPECT_NE(t.problems[ProfileProblem::bad_event].first.find("of the uncompressed text"), std::string::npos);
}

TEST(ReadProfile, NotATrace) {
  EXPECT_NE(profile_error("").find("is not a profiler trace"), std::string::npos);
  EXPECT_NE(profile_error("hello").find("export_chrome_trace"), std::string::npos);
  EXPECT_NE(profile_error(R"({"a": 1})").find("it has no \"traceEvents\""), std::string::npos);
  EXPECT_NE(profile_error(R"({"traceEvents": 5})").find("it has no \"traceEvents\""), std::string::npos);
  EXPECT_NE(profile_error("[1, 2, 3]").find("is not a profiler trace"), std::string::npos);
  EXPECT_NE(profile_error(R"({"a": )").find("ends before its"), std::string::npos);
  EXPECT_THROW(read_profile("/nonexistent/trace.json"), Error);
  EXPECT_THROW(read_profile(testing::TempDir()), Error);
}

TEST(ReadProfile, LooksLikeProfile) {
  const auto looks = [](const std::string& text) { return looks_like_profile(write_profile(text)); };
  EXPECT_TRUE(looks(trace_of({})));
  EXPECT_TRUE(looks(gzip(trace_of({op("a")}))));
  EXPECT_TRUE(looks(" \n[\n{"));
  EXPECT_TRUE(looks("[]"));
  EXPECT_FALSE(looks(""));
  EXPECT_FALSE(looks("a 1 512 0\n"));
  EXPECT_FALSE(looks(R"({"record": "header", "schema_version": 1})"));
  EXPECT_FALSE(looks(R"(["alloc", 1, 2])"));
}

// ---- windows and noise ------------------------------------------------------------------------------------------------------------

std::string mixed_trace() {
  return trace_of(
      {op("aten::a\\n", "4427620945618.563", R"("Input Dims": [[1, 2], []], "Concrete Inputs": ["", "\"\\"], "Ev Idx": 4)"),
       span("python_function", "nn.Module: Conv2d_3", "4427620945610.1", "50.5", R"("Python id": 1, "Python module id": 3)"),
       span("python_function", R"({"device": "cpu"}(12): run)", "2", "1"), memory("4427620945620.5", R"("Bytes": 100, "Addr": 4096)"),
       span("user_annotation", "ProfilerStep#1", "4427620945610.1", "70"), "junk", span("kernel", "k", "1", "1"),
       memory("4427620945620.5", R"("Bytes": -100, "Addr": 4096, "Total Allocated": 17)"), op("negative", "4427620945618", "}")},
      R"("metadata": {"a": ["}"]}, "record_shapes": 1,)", R"(, "gpucast": {"steps": [1, "]}"]}, "baseTimeNanoseconds": 17)");
}

TEST(ReadProfile, WindowsDoNotMatter) {
  const std::string text = mixed_trace();
  const std::string expected = describe(read_profile_text(text));
  EXPECT_NE(expected.find("Conv2d_3"), std::string::npos);
  EXPECT_NE(expected.find("ProfilerStep#1"), std::string::npos);
  std::string path = write_profile(text);
  for (size_t window = 1; window < 300; ++window) ASSERT_EQ(describe(read_profile(path, window)), expected) << window;
  path = write_profile(gzip(text));
  ProfileTrace packed = read_profile_text(gzip(text));
  for (const size_t window : {1, 2, 3, 7, 64, 100}) ASSERT_EQ(describe(read_profile(path, window)), describe(packed)) << window;
}

// A list of 2 MiB inside one event, and one event that never ends.
TEST(ReadProfile, LongEvents) {
  std::string dims = "[[";
  while (dims.size() < (2u << 20)) dims += "1, ";
  dims += "1]]";
  ProfileTrace t = read_profile_text(trace_of({op("a", "1", "\"Input Dims\": " + dims), op("b", "20")}));
  EXPECT_EQ(names(t), (Names{"a", "b"}));
  EXPECT_EQ(t.strings.text(t.spans[0].dims), dims);
  t = read_profile_text(trace_of({op("a", "1", "\"Call stack\": \"" + std::string(20u << 20, 'x') + "\""), op("b", "20")}));
  EXPECT_EQ(names(t), (Names{"b"}));
  EXPECT_EQ(bad(t), 1);
}

TEST(ReadProfile, DeepNesting) {
  const ProfileTrace t = read_profile_text(trace_of({op("x", "1", "\"a\": " + std::string(100000, '[')), op("b", "20")}));
  EXPECT_EQ(names(t), (Names{"b"}));
  EXPECT_EQ(bad(t), 1);
}

// Random damage to bytes never crashes the reader, and it finds all undamaged events. Deterministic.
TEST(ReadProfile, RandomDamage) {
  std::vector<std::string> events;
  for (int i = 0; i < 40; ++i)
    events.push_back(i % 3 == 0
                         ? memory(fmt::format("{}.5", i), fmt::format(R"("Bytes": {}, "Addr": 4096)", i))
                         : op(fmt::format("op{}", i), fmt::format("{}", i), R"("Input Dims": [[1, 2], []], "Concrete Inputs": ["", "x"])"));
  const std::string text = trace_of(events);
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::string damaged = text;
    const size_t hits = 1 + random() % 3;
    for (size_t i = 0; i < hits; ++i) {
      const size_t at = 40 + random() % (text.size() - 44);
      constexpr std::string_view kBytes = "\"\\{}[],:x0 \n\0\xff";
      switch (random() % 3) {
        case 0:
          damaged[at] = kBytes[random() % kBytes.size()];
          break;
        case 1:
          damaged.erase(at, 1 + random() % 3);
          break;
        default:
          damaged.insert(at, 1, kBytes[random() % kBytes.size()]);
      }
    }
    const std::string path = write_profile(damaged);
    const ProfileTrace t = read_profile(path, 1 + random() % 4096);
    // A damaged byte spoils its event, and at worst also the next one.
    EXPECT_GE(t.spans.size() + t.memory.size(), events.size() - 2 * hits) << damaged;
    for (const ProfileMemory& m : t.memory) ASSERT_LT(m.thread, t.threads.size());
    for (const ProfileSpan& s : t.spans) {
      ASSERT_LT(s.thread, t.threads.size());
      ASSERT_LE(s.begin_ns, s.end_ns);
    }
  }
}

// ---- texts --------------------------------------------------------------------------------------------------------------------

TEST(ProfileText, ParseScaled) {
  EXPECT_EQ(parse_scaled("4427620945618.563", 3), 4427620945618563);
  EXPECT_EQ(parse_scaled("1623142624457419", 3), 1623142624457419000);
  EXPECT_EQ(parse_scaled("0.001", 3), 1);
  EXPECT_EQ(parse_scaled("1.5", 3), 1500);
  EXPECT_EQ(parse_scaled("-0.25", 3), -250);
  EXPECT_EQ(parse_scaled("1.0005", 3), 1001);  // more decimals than nanoseconds: the nearest
  EXPECT_EQ(parse_scaled("1.00049999999999999999999", 3), 1000);
  EXPECT_EQ(parse_scaled("1.623142624457419e15", 3), 1623142624457419000);
  EXPECT_EQ(parse_scaled("1E+2", 0), 100);
  EXPECT_EQ(parse_scaled("12345e-3", 3), 12345);
  EXPECT_EQ(parse_scaled("12345e-2", 0), 123);
  EXPECT_EQ(parse_scaled("5e-1", 0), 1);
  EXPECT_EQ(parse_scaled("1e-99999999999", 0), 0);
  EXPECT_EQ(parse_scaled("0e99999999999", 0), 0);
  EXPECT_EQ(parse_scaled("000000000000000000000000000007", 0), 7);
  EXPECT_EQ(parse_scaled("4611686018427387903", 0), 4611686018427387903);
  for (const char* text : {"", "\"1\"", "-", ".", "e5", "1e", "1e+", "1x", "1 ", "null", "nan", "inf", "0x10", "1.2.3",
                           "4611686018427387904", "99999999999999999999", "1e19", "1e99999999999", "--1"}) {
    EXPECT_EQ(parse_scaled(text, 0), std::nullopt) << text;
  }
}

TEST(ProfileText, ParseScaledAgainstLongDivision) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20000; ++round) {
    const int64_t ns = static_cast<int64_t>(random() % (uint64_t{1} << (random() % 61)));
    EXPECT_EQ(parse_scaled(fmt::format("{}.{:03}", ns / 1000, ns % 1000), 3), ns);
    EXPECT_EQ(parse_scaled(fmt::format("-{}.{:03}", ns / 1000, ns % 1000), 3), -ns);
    EXPECT_EQ(parse_scaled(fmt::format("{}e-3", ns), 3), ns);
  }
}

TEST(ProfileText, ParseDims) {
  using Shape = std::vector<int64_t>;
  const DimsList dims = parse_dims("[[4, 3, 86, 86], [], [[3, 86], [], [5]], [64]]");
  EXPECT_EQ(dims.inputs, (std::vector<Shape>{{4, 3, 86, 86}, {}, {}, {64}}));
  EXPECT_EQ(dims.lists, (std::vector<std::vector<Shape>>{{}, {}, {{3, 86}, {}, {5}}, {}}));
  EXPECT_TRUE(parse_dims("").inputs.empty());
  EXPECT_TRUE(parse_dims("[]").inputs.empty());
  EXPECT_EQ(parse_dims(R"(["", 3, [7]])").inputs, (std::vector<Shape>{{}, {}, {7}}));
  EXPECT_EQ(parse_dims("[[1, 2], [3").inputs.size(), 2u);  // cut off: the part before the cut
}

TEST(ProfileText, ParseTexts) {
  EXPECT_EQ(parse_texts(R"(["float", "long int", "", "Scalar"])"), (Names{"float", "long int", "", "Scalar"}));
  EXPECT_EQ(parse_texts(R"(["[3, 3]", "a\"b", 7, "C:\x"])"), (Names{"[3, 3]", "a\"b", "7", "C:\\x"}));
  EXPECT_TRUE(parse_texts("").empty());
  EXPECT_TRUE(parse_texts("[]").empty());
  EXPECT_TRUE(parse_texts("17").empty());
}

}  // namespace
}  // namespace gpucast
