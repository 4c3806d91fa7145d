#include "src/run/capture_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gpucast/error.h"
#include "src/base/gzip_lines.h"
#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

struct TemporaryFolder {
  TemporaryFolder() : path(make_session_folder()) {}
  ~TemporaryFolder() { remove_folder(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(RankPath, RankZeroHasTheNameThatWasAskedFor) {
  EXPECT_EQ(rank_path("train.gpucast", 0), "train.gpucast");
  EXPECT_EQ(rank_path("out/train.gpucast", 3), "out/train.rank3.gpucast");
  EXPECT_EQ(rank_path("train", 1), "train.rank1");
}

TEST(CaptureFile, LeavesNothingUnlessKept) {
  const TemporaryFolder folder;
  {
    const CaptureFile file(folder / "a.gpucast", false);
    EXPECT_EQ(files_in(folder.path), 1U);
  }
  EXPECT_EQ(files_in(folder.path), 0U);
}

TEST(CaptureFile, RefusesWhatIsThere) {
  const TemporaryFolder folder;
  write_file(folder / "a.gpucast", "mine");
  EXPECT_THROW(CaptureFile(folder / "a.gpucast", false), Error);
  EXPECT_THROW(CaptureFile(folder.path, true), Error);
  EXPECT_THROW(CaptureFile(folder / "no/a.gpucast", true), Error);
  EXPECT_THROW(CaptureFile("/dev/null", true), Error);
  EXPECT_EQ(read_file(folder / "a.gpucast"), "mine");
  EXPECT_EQ(files_in(folder.path), 1U);
}

TEST(CaptureFile, DoesNotOverwriteWhatAppearedMeanwhile) {
  const TemporaryFolder folder;
  CaptureFile file(folder / "a.gpucast", false);
  write_file(folder / "a.gpucast", "mine");
  EXPECT_THROW(file.keep(), Error);
  EXPECT_EQ(read_file(folder / "a.gpucast"), "mine");
}

TEST(CaptureFile, JoinsTheSectionsAndCountsTheLines) {
  const TemporaryFolder folder;
  write_file(folder / "7.torch", R"({"version": "2.6.0+cu124", "cuda": "12.4"})");
  write_file(folder / "7.history", "{\"record\": \"process\"}\n[\"alloc\", 1]\n");
  write_file(folder / "7.vgpu", "[\"vgpu_mark\", 1]");  // a last line without a newline
  RunSettings settings;
  settings.gpu = find_gpu("rtx3060");
  settings.command = {"python", "\xff.py"};  // no UTF-8
  CapturedProcess process;
  process.pid = 7;
  CaptureFile file(folder / "a.gpucast", false);
  file.assemble(folder.path, process, settings, {3, {{1, "raised ValueError: bad"}}});
  EXPECT_EQ(file.keep(), folder / "a.gpucast");
  GzipLines lines(folder / "a.gpucast");
  std::vector<std::string> found;
  for (std::string_view line; lines.next(&line);) found.emplace_back(line);
  ASSERT_EQ(found.size(), 6U);
  EXPECT_NE(found[0].find("\"capacity_bytes\":12485853184"), std::string::npos);
  EXPECT_EQ(found[2], "[\"alloc\", 1]");
  EXPECT_EQ(found[3], R"({"record":"command_end","exit_code":3,"failed_ranks":[{"rank":1,"what":"raised ValueError: bad"}]})");
  EXPECT_EQ(found[4], "[\"vgpu_mark\", 1]");
  EXPECT_EQ(found[5], R"({"record":"eof","lines":5})");
  EXPECT_EQ(lines.end(), GzipLines::End::complete);
}

}  // namespace
}  // namespace gpucast::run
