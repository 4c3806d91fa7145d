#include "src/base/gzip_lines.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/base/test_gzip.h"

namespace gpucast {
namespace {

class GzipLinesTest : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = testing::TempDir() + "gzip_lines_test." + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::vector<std::string> lines(GzipLines* reader) {
    std::vector<std::string> out;
    std::string_view line;
    while (reader->next(&line)) out.emplace_back(line);
    return out;
  }
};

TEST_F(GzipLinesTest, SeveralMembersAreOneText) {
  GzipLines reader(write(gzip("one\ntw") + gzip("o\n\nthree\n") + std::string(512, '\0')));
  EXPECT_EQ(lines(&reader), (std::vector<std::string>{"one", "two", "", "three"}));
  EXPECT_EQ(reader.end(), GzipLines::End::complete);
  EXPECT_EQ(reader.line_number(), 4u);
  EXPECT_EQ(reader.line_offset(), 9u);
}

TEST_F(GzipLinesTest, LastLineMayLackItsNewline) {
  GzipLines reader(write(gzip("one\ntwo")));
  EXPECT_EQ(lines(&reader), (std::vector<std::string>{"one", "two"}));
}

TEST_F(GzipLinesTest, PlainTextIsReadToo) {
  GzipLines reader(write("one\ntwo\n"));
  EXPECT_FALSE(reader.is_gzip());
  EXPECT_EQ(lines(&reader), (std::vector<std::string>{"one", "two"}));
}

TEST_F(GzipLinesTest, LinesLongerThanTheBuffer) {
  const std::string longest(5 << 20, 'x');
  GzipLines reader(write(gzip("a\n" + longest + "\nb\n")));
  const auto all = lines(&reader);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1], longest);
  EXPECT_EQ(all[2], "b");
}

TEST_F(GzipLinesTest, ACutFileGivesItsWholeLinesAndSaysWhereItEnds) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string whole = gzip(text);
  const std::string cut = whole.substr(0, whole.size() / 2);
  GzipLines reader(write(cut));
  const auto all = lines(&reader);
  EXPECT_EQ(reader.end(), GzipLines::End::truncated);
  EXPECT_EQ(reader.file_offset(), cut.size());
  ASSERT_GT(all.size(), 1000u);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], std::to_string(i * 7919));
}

TEST_F(GzipLinesTest, DamageIsToldFromTruncation) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += std::to_string(i * 7919) + "\n";
  std::string bytes = gzip(text);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x5a);
  bytes[bytes.size() / 2 + 1] = static_cast<char>(bytes[bytes.size() / 2 + 1] ^ 0x5a);
  GzipLines reader(write(bytes));
  lines(&reader);
  EXPECT_EQ(reader.end(), GzipLines::End::corrupt);
}

TEST_F(GzipLinesTest, NoSuchFile) { EXPECT_THROW(GzipLines("/no/such/file"), Error); }

}  // namespace
}  // namespace gpucast
