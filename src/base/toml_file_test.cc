#include "src/base/toml_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "gpucast/error.h"

namespace gpucast {
namespace {

std::string toml_problem(const std::string& text) {
  try {
    parse_toml(text, "a.toml");
  } catch (const Error& error) {
    return error.where;
  }
  return "none";
}

TEST(TomlFile, EachValueHasItsPlace) {
  const TomlValue file = parse_toml(
      "size = 3\n[[job]]\nname = \"a\"  # first\nlimits = { growth = \"5%\", fits = true }\n[[job]]\nlist = [1.5, 2]\n", "a.toml");
  ASSERT_EQ(file.values.size(), 2U);
  EXPECT_EQ(file.find("size")->integer, 3);
  EXPECT_EQ(file.find("none"), nullptr);
  const TomlValue& jobs = *file.find("job");
  ASSERT_EQ(jobs.values.size(), 2U);
  EXPECT_EQ(jobs.values[0].place.line, 2);
  EXPECT_EQ(file_place("a.toml", jobs.values[0].find("name")->place), "a.toml:3:8");
  const TomlValue& limits = *jobs.values[0].find("limits");
  EXPECT_EQ(limits.kind, TomlKind::table);
  EXPECT_EQ(file_place("a.toml", limits.find("growth")->key_place), "a.toml:4:12");
  EXPECT_TRUE(limits.find("fits")->boolean);
  const TomlValue& list = *jobs.values[1].find("list");
  EXPECT_EQ(list.kind, TomlKind::array);
  EXPECT_EQ(list.values[0].number, 1.5);
  EXPECT_EQ(list.values[1].kind, TomlKind::integer);
}

TEST(TomlFile, KeysAreInTheOrderOfTheFile) {
  const TomlValue file = parse_toml("z = 1\na = 2\nm = 3\n", "a.toml");
  EXPECT_EQ(file.values[0].key + file.values[1].key + file.values[2].key, "zam");
}

TEST(TomlFile, AMistakeHasItsPlace) {
  EXPECT_EQ(toml_problem("a = 1\nb = \n"), "a.toml:2:5");
  EXPECT_EQ(toml_problem("a = 1\na = 2\n").substr(0, 9), "a.toml:2:");
  EXPECT_THROW(read_toml(testing::TempDir() + "/no such file.toml"), Error);
  EXPECT_THROW(read_toml(testing::TempDir()), Error);
}

}  // namespace
}  // namespace gpucast
