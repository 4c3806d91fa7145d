#include "src/cli/arguments.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/cli/subcommand.h"

namespace gpucast::cli {
namespace {

using ArgumentWords = std::vector<std::string>;

// Words that CLI11, a shell, printf or an options file would interpret.
const ArgumentWords& odd_words() {
  static const ArgumentWords words{
      "[64, 64]",
      "[0,1]",
      "[[1,2],[3,4]]",
      R"(["a", "b"])",
      "[]",
      "[",
      "]",
      "[a",
      "a]",
      "--layers=[1,2]",
      "{}",
      "{",
      "}",
      R"({"a": [1, 2], "b": {"c": null}})",
      "(1, 2)",
      "()",
      "",
      "",
      " ",
      "  two  words ",
      "\t",
      "\n",
      "a\nb",
      "\r\n",
      "--",
      "-",
      "---",
      "--number",
      "--number=3",
      "-o",
      "--help",
      "-h",
      "--version",
      "sub",
      "@file",
      "@",
      "'",
      "\"",
      "it's",
      "\"quoted\"",
      "\\",
      "\\n",
      "`date`",
      "$HOME",
      "$(id)",
      "*",
      "?",
      "~",
      "#",
      "a;b",
      "|",
      "%%",
      "%s",
      "++",
      "=",
      "a=b",
      "-1",
      "1e-3",
      "None",
      "\xff",
      "caf\xe9",
      "--x=\xff\xfe",
      "\xc3\xa9",
      "\xe6\x97\xa5\xe6\x9c\xac",
      "\x01\x1b[31m",
      "\x7f",
      std::string(5000, 'x'),
  };
  return words;
}

struct Taken {
  std::string output, how;
  std::vector<std::string> list, command;
  std::optional<std::string> perhaps;
  int64_t number = 0;
} taken;

void declare_with_command(Arguments& arguments) {
  arguments.option("-o,--output", &taken.output, "");
  arguments.option("--each", &taken.list, "").one_each_time();
  arguments.option("--perhaps", &taken.perhaps, "");
  arguments.option("--how", &taken.how, "").one_of_or_number({"few", "most"}, "skew", "X");
  arguments.option("--number", &taken.number, "");
  arguments.command(&taken.command);
  arguments.action([] { return 7; });
}

void declare_with_list(Arguments& arguments) {
  arguments.option("FILE|COMMAND", &taken.command, "");
  arguments.option("--number", &taken.number, "");
  arguments.action([] { return 7; });
}

int parse(ArgumentWords words) {
  taken = {};
  const Subcommand subcommands[] = {{"sub", "", declare_with_command}, {"list", "", declare_with_list}};
  words.insert(words.begin(), "gpucast");
  std::vector<char*> argv;
  argv.reserve(words.size());
  for (std::string& word : words) argv.push_back(word.data());
  return run_command_line(subcommands, static_cast<int>(argv.size()), argv.data());
}

ArgumentWords join(ArgumentWords words, const ArgumentWords& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string problem_of(const ArgumentWords& words) {
  try {
    parse(words);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Arguments, ACommandAfterTheDashesIsByteForByte) {
  for (const char* subcommand : {"sub", "list"}) {
    const ArgumentWords command = join({"python", "t.py"}, odd_words());
    EXPECT_EQ(parse(join({subcommand, "--number", "3", "--"}, command)), 7);
    EXPECT_EQ(taken.command, command);
    EXPECT_EQ(taken.number, 3);
    for (const std::string& word : odd_words()) {
      parse({subcommand, "--", word});
      EXPECT_EQ(taken.command, ArgumentWords{word});
    }
  }
}

TEST(Arguments, ACommandWithoutDashesIsByteForByte) {
  const ArgumentWords command = join({"python"}, odd_words());
  EXPECT_EQ(parse(join({"sub", "--number", "3"}, command)), 7);
  EXPECT_EQ(taken.command, command);
  EXPECT_EQ(taken.number, 3);
}

TEST(Arguments, OptionsAreByteForByte) {
  for (const std::string& word : odd_words()) {
    if (word == "--") continue;  // ends the options at any position
    parse({"sub", "--output=" + word, "--perhaps=" + word, "--each=" + word, "--each=b", "--", "c"});
    EXPECT_EQ(taken.output, word);
    EXPECT_EQ(taken.perhaps, word);
    EXPECT_EQ(taken.list, (ArgumentWords{word, "b"}));
  }
  parse({"sub", "-o", "[a, b]", "--each", "[c]", "--each", "[d, e]", "f"});
  EXPECT_EQ(taken.output, "[a, b]");
  EXPECT_EQ(taken.list, (ArgumentWords{"[c]", "[d, e]"}));
  EXPECT_EQ(taken.command, ArgumentWords{"f"});
}

TEST(Arguments, MessagesShowWordsAsTheyWereTyped) {
  EXPECT_EQ(problem_of({"sub", "--number", "[5]", "--", "x"}), "Could not convert: --number = [5]");
  EXPECT_EQ(problem_of({"sub", "--numbr", "5", "--", "x"}).find('\0'), std::string::npos);
  EXPECT_EQ(problem_of({"sub", "--"}), "command is required");
  EXPECT_EQ(problem_of({"nothing", "--", "[x]"}).find('\0'), std::string::npos);
}

TEST(Arguments, AWordOrAWordWithANumber) {
  for (const char* good : {"few", "most", "skew:1.5", "skew:1e-3", "skew:2"}) {
    EXPECT_EQ(parse({"sub", "--how", good, "--", "x"}), 7);
    EXPECT_EQ(taken.how, good);
  }
  for (const char* bad : {"skew", "skew:", "skew:0", "skew:-1", "skew:x", "skew:1.5x", "skew:1e400", "skew:nan", "skew:1:2"})
    EXPECT_EQ(problem_of({"sub", "--how", bad, "--", "x"}), std::string("--how: ") + bad + ": X must be a number above 0");
  for (const char* bad : {"other", "ske:1", "few:1"})
    EXPECT_EQ(problem_of({"sub", "--how", bad, "--", "x"}), std::string("--how: ") + bad + " is none of few, most, skew:X");
}

}  // namespace
}  // namespace gpucast::cli
