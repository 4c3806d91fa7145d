#include "src/search/expression.h"

#include <gtest/gtest.h>

#include <map>

#include "gpucast/error.h"

namespace gpucast::search {
namespace {

int64_t calculated(const std::string& text, const std::map<std::string, int64_t>& numbers = {}) {
  return Expression(text).value([&](const std::string& name) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const std::string& text) {
  try {
    return std::to_string(calculated(text));
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.where;
  }
}

TEST(Expression, CalculatesByPrecedence) {
  EXPECT_EQ(calculated("1 + 2 * 3"), 7);
  EXPECT_EQ(calculated("(1 + 2) * 3"), 9);
  EXPECT_EQ(calculated("10 - 4 - 3"), 3);
  EXPECT_EQ(calculated("17 / 5 * 5 + 17 % 5"), 17);
  EXPECT_EQ(calculated("-2 * -3"), 6);
  EXPECT_EQ(calculated("1 + 1 == 2 && 3 > 2"), 1);
  EXPECT_EQ(calculated("1 == 2 || 2 <= 2 && !0"), 1);
  EXPECT_EQ(calculated("!(1<2)"), 0);
  EXPECT_EQ(calculated("3>=4||3!=3"), 0);
}

TEST(Expression, KnowsNames) {
  const std::map<std::string, int64_t> numbers{{"tp", 4}, {"pp", 2}, {"dp_2", 8}, {"world", 64}, {"heads", 30}};
  EXPECT_EQ(calculated("tp*pp*dp_2 == world", numbers), 1);
  EXPECT_EQ(calculated("heads % tp == 0", numbers), 0);
  EXPECT_EQ(Expression("tp * pp + tp").names(), (std::vector<std::string>{"tp", "pp"}));
  EXPECT_EQ(refusal("layers > 1"), "'layers' has no number here | layers > 1");
}

TEST(Expression, LeavesOutWhatDoesNotMatter) {
  EXPECT_EQ(calculated("0 && 1 / 0"), 0);
  EXPECT_EQ(calculated("1 || unknown"), 1);
}

TEST(Expression, SaysWhereItIsWrong) {
  EXPECT_EQ(refusal("tp *"), "this is no constraint: a number or a name is missing at its end | tp *, column 5");
  EXPECT_EQ(refusal("1 = 2"), "this is no constraint: '=' does not belong there | 1 = 2, column 3");
  EXPECT_EQ(refusal("(1 + 2"), "this is no constraint: a bracket is left open | (1 + 2, column 7");
  EXPECT_EQ(refusal("1 + $x"), "this is no constraint: '$' is no number and no name | 1 + $x, column 5");
  EXPECT_EQ(refusal("f(1)"), "this is no constraint: '(' does not belong there | f(1), column 2");
  EXPECT_EQ(refusal("99999999999999999999"), "this is no constraint: this number is too large | 99999999999999999999, column 21");
  EXPECT_EQ(refusal(""), "this is no constraint: a number or a name is missing at its end | , column 1");
  EXPECT_EQ(refusal("1 % 0"), "this constraint divides by 0 | 1 % 0");
  EXPECT_EQ(refusal("9223372036854775807 + 1"), "a number of this constraint is beyond 64 bits | 9223372036854775807 + 1");
  EXPECT_EQ(calculated(std::string(400, '(') + "1" + std::string(400, ')')), 1);
  EXPECT_NE(refusal(std::string(100'000, '!') + "1").find("it is longer than 1000 characters"), std::string::npos);
}

}  // namespace
}  // namespace gpucast::search
