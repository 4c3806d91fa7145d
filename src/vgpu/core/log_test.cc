#include "src/vgpu/core/log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/launch_values.h"

namespace gpucast::vgpu {
namespace {

std::string json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::vector<std::string> written() {
  const std::string path = testing::TempDir() + "gpucast_log_" + std::to_string(getpid());
  EXPECT_EQ(gpucast_vgpu_write_log(path.c_str(), 0), 0);
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  unlink(path.c_str());
  return lines;
}

// Without the log's times and threads.
std::vector<std::string> written_work() {
  std::vector<std::string> lines = written();
  std::erase_if(lines,
                [](const std::string& line) { return line.starts_with("[\"thread\"") || line.starts_with("{\"record\":\"clock\""); });
  return lines;
}

// A line of work without its last element, which is the time.
std::string untimed(const std::string& line) { return line.substr(0, line.rfind(',')) + ']'; }
int64_t time_of(const std::string& line) { return std::stoll(line.substr(line.rfind(',') + 1)); }

size_t count(const std::vector<std::string>& lines, const std::string& part) {
  return static_cast<size_t>(
      std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(part) != std::string::npos; }));
}

TEST(Log, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(json("_Z3fooILi1EEvPf"), "\"_Z3fooILi1EEvPf\"");
  EXPECT_EQ(json("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\u000a\\u0001\"");
  EXPECT_EQ(json("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
  EXPECT_EQ(json("\xff\xc3"), "\"??\"");
  EXPECT_EQ(json("\xed\xa0\x80"), "\"???\"") << "a surrogate";
  EXPECT_EQ(json("\xc0\xaf"), "\"??\"") << "an overlong form";
}

TEST(Log, NamesAKernelOnceBeforeItsFirstLaunch) {
  const unsigned grid[3] = {7, 2, 1}, block[3] = {128, 1, 1};
  const std::string name = "kernel_of_log_test<\"x\">";
  log_kernel(name.c_str(), grid, block, 48, 3);
  log_kernel(name.c_str(), grid, block, 0, 0);
  const std::vector<std::string> lines = written_work();
  const auto named = std::find_if(lines.begin(), lines.end(),
                                  [](const std::string& line) { return line.find("kernel_of_log_test") != std::string::npos; });
  ASSERT_NE(named, lines.end());
  EXPECT_EQ(count(lines, "kernel_of_log_test"), 1u);
  const std::string id = named->substr(15, named->find(',', 15) - 15);
  EXPECT_EQ(*named, "[\"kernel_name\"," + id + ",\"kernel_of_log_test<\\\"x\\\">\"]");
  EXPECT_EQ(untimed(*(named + 1)), "[\"kernel\"," + id + ",7,2,1,128,1,1,48,3]");
  EXPECT_EQ(untimed(*(named + 2)), "[\"kernel\"," + id + ",7,2,1,128,1,1,0,0]");
}

TEST(Log, AKernelsLineHoldsThePointersAmongItsArguments) {
  const unsigned one[3] = {1, 1, 1};
  uint64_t first = 0, second = 0;
  ASSERT_EQ(device_alloc(1 << 20, &first), Status::ok);
  ASSERT_EQ(device_alloc(1 << 20, &second), Status::ok);
  const std::vector<uint64_t> arguments{first, 4096, second + 512};
  const std::string line = kernel_line("compiled", one, one, 0, 5, {}, {arguments, {}, nullptr});
  EXPECT_TRUE(line.ends_with(",1,1,1,1,1,1,0,5,[" + std::to_string(first) + "," + std::to_string(second + 512) + "]]")) << line;
  const KernelCode code{7, 8, ".version 8.0"};
  remember_values(first, "\1\2");
  const std::vector<LaunchValuesRef> values = values_at(arguments);
  const std::string known = kernel_line("compiled", one, one, 0, 5, {}, {arguments, "ab", &code, values});
  EXPECT_TRUE(known.starts_with("[\"arguments\",\"6162\"," + std::to_string(values.at(0)->id) + "]\n[\"kernel\",")) << known;
  const std::vector<uint64_t> numbers{1, 4096};
  EXPECT_TRUE(kernel_line("compiled", one, one, 0, 5, {}, {numbers, {}, nullptr}).ends_with(",1,1,1,1,1,1,0,5]"));
  device_free(first);
  device_free(second);
}

TEST(Log, KeepsTheOrderOfMarksAndCalls) {
  gpucast_vgpu_mark(41);
  log_call("cublas", "cublasSgemm", "{\"m\":2}", 5);
  gpucast_vgpu_mark(42);
  const std::vector<std::string> lines = written_work();
  const auto mark = std::find(lines.begin(), lines.end(), "[\"vgpu_mark\",41]");
  ASSERT_NE(mark, lines.end());
  EXPECT_EQ(untimed(*(mark + 1)), "[\"call\",\"cublas\",\"cublasSgemm\",{\"m\":2},5]");
  EXPECT_EQ(*(mark + 2), "[\"vgpu_mark\",42]");
}

TEST(Log, TimesWorkAndSaysWhichThreadDidIt) {
  gpucast_vgpu_mark(51);
  log_call("cublas", "first", "{}", 0);
  std::thread([] { log_call("cublas", "second", "{}", 0); }).join();
  log_call("cublas", "third", "{}", 0);
  const std::vector<std::string> lines = written();
  EXPECT_EQ(count(lines, "{\"record\":\"clock\",\"unix_ns\":"), 1u);
  const auto line =
      std::find_if(lines.begin(), lines.end(), [](const std::string& text) { return text.find("first") != std::string::npos; });
  ASSERT_NE(line, lines.end());
  const std::vector<std::string> work(line, lines.end());
  ASSERT_GE(work.size(), 5u);
  EXPECT_NE(work[0].find("first"), std::string::npos);
  EXPECT_EQ(work[1].rfind("[\"thread\",", 0), 0u);
  EXPECT_NE(work[2].find("second"), std::string::npos);
  EXPECT_EQ(work[3].rfind("[\"thread\",", 0), 0u);
  EXPECT_NE(work[1], work[3]);
  EXPECT_NE(work[4].find("third"), std::string::npos);
  EXPECT_LE(0, time_of(work[0]));
  EXPECT_LE(time_of(work[0]), time_of(work[2]));
  EXPECT_LE(time_of(work[2]), time_of(work[4]));
}

TEST(Log, CountsCallsWithoutAnAnswer) {
  EXPECT_EQ(not_supported("cudart", "cudaOfLogTest"), 801);
  EXPECT_EQ(not_supported("cudart", "cudaOfLogTest"), 801);
  EXPECT_EQ(not_supported("cudnn", "cudnnOfLogTest"), 3000);
  EXPECT_NE(not_supported("a library of the future", "f"), 0);
  const std::vector<std::string> lines = written();
  EXPECT_EQ(count(lines, "{\"record\":\"unsupported\",\"library\":\"cudart\",\"name\":\"cudaOfLogTest\",\"count\":2}"), 1u);
  EXPECT_EQ(lines.back().rfind("{\"record\":\"vgpu_end\",", 0), 0u);
}

TEST(Log, SaysWhyItCannotBeWritten) { EXPECT_EQ(gpucast_vgpu_write_log("/no/such/folder/log", 0), ENOENT); }

TEST(Log, AForkedChildDoesNotTouchItsParentsLog) {
  gpucast_vgpu_mark(77);
  context_activate();
  const pid_t child = fork();
  if (child == 0) {
    gpucast_vgpu_mark(78);
    uint64_t address = 0;
    const bool works = device_alloc(100, &address) == Status::ok && device_free(address) == Status::ok;
    _exit(works && gpucast_vgpu_write_log("/no/such/folder/log", 0) == EPERM ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::vector<std::string> lines = written();
  EXPECT_EQ(count(lines, "[\"vgpu_mark\",77]"), 1u);
  EXPECT_EQ(count(lines, "[\"vgpu_mark\",78]"), 0u);
}

TEST(Log, HoldEndsWithTheSupervisor) {
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    pause();
    _exit(0);
  }
  const pid_t held = fork();
  if (held == 0) gpucast_vgpu_hold(supervisor);
  usleep(50'000);
  EXPECT_EQ(waitpid(held, nullptr, WNOHANG), 0) << "stands still";
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  int status = -1;
  EXPECT_EQ(waitpid(held, &status, 0), held);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gpucast::vgpu
