#include "src/base/command_words.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace gpucast {
namespace {

using CommandWords = std::vector<std::string>;

const CommandWords kWords{"a",
                          "",
                          " ",
                          "it's",
                          "\"",
                          "\\",
                          "[1, 2]",
                          "$HOME",
                          "`x`",
                          "!",
                          "a\nb",
                          "\n\n",
                          "\x01",
                          "\x7f",
                          "\t",
                          "\xff",
                          "caf\xe9'\\",
                          "\xc3\xa9",
                          "\xe2\x82\xac '",
                          "~",
                          "--",
                          "\x01"
                          "7"};

TEST(CommandWords, ComeBackFromJson) {
  const Json json = Json::parse(command_json(kWords).dump());
  ASSERT_EQ(json.size(), kWords.size());
  for (size_t i = 0; i < kWords.size(); ++i) EXPECT_EQ(word_from_json(json.at(i)), kWords[i]);
  EXPECT_EQ(command_json({"a", "-\xff"}).dump(), R"(["a",{"hex":"2dff"}])");
  for (const char* odd : {"1", "null", "{}", R"({"hex": 1})", R"({"hex": "f"})", R"({"hex": "fg"})", R"({"hex": "ff", "x": 1})"})
    EXPECT_FALSE(word_from_json(Json::parse(odd))) << odd;
}

std::string printed_by(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string out;
  std::array<char, 4096> part{};
  for (size_t size = 0; (size = fread(part.data(), 1, part.size(), pipe.get())) > 0;) out.append(part.data(), size);
  return out;
}

TEST(CommandWords, AShellReadsThemBack) {
  std::string wanted, plain;
  for (const std::string& word : kWords) wanted.append(word).push_back('\0');
  EXPECT_EQ(printed_by("bash -c " + shell_quote({"printf '%s\\0' " + shell_quote(kWords)})), wanted);
  // Without control characters every POSIX shell reads it.
  EXPECT_EQ(printed_by("printf '%s|' " + shell_quote({"", "it's", "\\", "$HOME", "\xc3\xa9", "[1, 2]"})),
            "|it's|\\|$HOME|\xc3\xa9|[1, 2]|");
  EXPECT_EQ(shell_quote({"a\nb", "caf\xe9"}), R"($'a\nb' $'caf\351')");
}

}  // namespace
}  // namespace gpucast
