#include "src/search/expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

#include "gpucast/error.h"
#include "src/base/to_number.h"

namespace gpucast::search {
namespace {

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

// A descent through the levels of precedence.
class ExpressionParser {
 public:
  ExpressionParser(const std::string& text, std::vector<Expression::Node>* nodes) : text_(text), nodes_(*nodes) {}

  void parse() {
    if (text_.size() > kLongest) fail(fmt::format("it is longer than {} characters", kLongest));
    binary(0);
    skip_blanks();
    if (at_ < text_.size()) fail(fmt::format("'{}' does not belong there", text_.substr(at_, 1)));
  }

 private:
  using Kind = Expression::Kind;
  struct Operator {
    std::string_view sign;
    Kind kind;
    int level;
  };
  // Two characters before one, so that "<=" is not read as "<".
  static constexpr std::array<Operator, 13> kOperators{{{"||", Kind::or_, 0},
                                                        {"&&", Kind::and_, 1},
                                                        {"==", Kind::equal, 2},
                                                        {"!=", Kind::unequal, 2},
                                                        {"<=", Kind::at_most, 3},
                                                        {">=", Kind::at_least, 3},
                                                        {"<", Kind::less, 3},
                                                        {">", Kind::more, 3},
                                                        {"+", Kind::plus, 4},
                                                        {"-", Kind::minus, 4},
                                                        {"*", Kind::times, 5},
                                                        {"/", Kind::over, 5},
                                                        {"%", Kind::rest, 5}}};
  static constexpr int kUnary = 6;
  static constexpr size_t kLongest = 1000;  // the parser descends for each bracket

  size_t binary(int level) {
    if (level == kUnary) return unary();
    size_t left = binary(level + 1);
    while (const Operator* found = operator_here(level)) {
      at_ += found->sign.size();
      const size_t right = binary(level + 1);
      left = add({found->kind, 0, "", left, right});
    }
    return left;
  }
  size_t unary() {
    skip_blanks();
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '!')) {
      const Kind kind = text_[at_++] == '-' ? Kind::negative : Kind::not_;
      const size_t of = unary();
      return add({kind, 0, "", of, of});
    }
    return value();
  }
  size_t value() {
    if (at_ == text_.size()) fail("a number or a name is missing at its end");
    const size_t begin = at_;
    if (text_[at_] == '(') {
      ++at_;
      const size_t inner = binary(0);
      skip_blanks();
      if (at_ == text_.size() || text_[at_] != ')') fail("a bracket is left open");
      ++at_;
      return inner;
    }
    if (is_digit(text_[at_])) {
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
      const auto number = to_number<int64_t>(std::string_view(text_).substr(begin, at_ - begin));
      if (!number) fail("this number is too large");
      return add({Kind::number, *number, "", 0, 0});
    }
    if (!begins_name(text_[at_])) fail(fmt::format("'{}' is no number and no name", text_.substr(at_, 1)));
    while (at_ < text_.size() && (begins_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
    return add({Kind::name, 0, text_.substr(begin, at_ - begin), 0, 0});
  }

  const Operator* operator_here(int level) {
    skip_blanks();
    const std::string_view rest = std::string_view(text_).substr(at_);
    const auto found = std::ranges::find_if(kOperators, [&](const Operator& one) { return rest.starts_with(one.sign); });
    return found != kOperators.end() && found->level == level ? &*found : nullptr;
  }
  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  size_t add(Expression::Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("this is no constraint: {}", what), fmt::format("{}, column {}", text_, at_ + 1),
                "whole numbers and names with + - * / % == != < <= > >= && || ! and brackets: \"heads % tp == 0\"");
  }

  const std::string& text_;
  std::vector<Expression::Node>& nodes_;
  size_t at_ = 0;
};

Expression::Expression(std::string text) : text_(std::move(text)) { ExpressionParser(text_, &nodes_).parse(); }

std::vector<std::string> Expression::names() const {
  std::vector<std::string> out;
  for (const Node& node : nodes_)
    if (node.kind == Kind::name && std::ranges::find(out, node.name) == out.end()) out.push_back(node.name);
  return out;
}

int64_t Expression::value(const Names& names) const { return value_of(nodes_.size() - 1, names); }

int64_t Expression::value_of(size_t index, const Names& names) const {
  const Node& node = nodes_[index];
  if (node.kind == Kind::number) return node.number;
  if (node.kind == Kind::name) {
    if (const std::optional<int64_t> number = names(node.name)) return *number;
    throw Error(fmt::format("'{}' has no number here", node.name), text_);
  }
  const int64_t left = value_of(node.left, names);
  if (node.kind == Kind::not_) return left == 0 ? 1 : 0;
  if (node.kind == Kind::negative) return calculated(Kind::minus, 0, left);
  if (node.kind == Kind::and_) return left != 0 && value_of(node.right, names) != 0 ? 1 : 0;
  if (node.kind == Kind::or_) return left != 0 || value_of(node.right, names) != 0 ? 1 : 0;
  return calculated(node.kind, left, value_of(node.right, names));
}

int64_t Expression::calculated(Kind kind, int64_t left, int64_t right) const {
  int64_t out = 0;
  bool too_large = false;
  switch (kind) {
    case Kind::plus:
      too_large = __builtin_add_overflow(left, right, &out);
      break;
    case Kind::minus:
      too_large = __builtin_sub_overflow(left, right, &out);
      break;
    case Kind::times:
      too_large = __builtin_mul_overflow(left, right, &out);
      break;
    case Kind::over:
    case Kind::rest:
      if (right == 0) throw Error("this constraint divides by 0", text_);
      too_large = left == std::numeric_limits<int64_t>::min() && right == -1;
      if (!too_large) out = kind == Kind::over ? left / right : left % right;
      break;
    case Kind::less:
      return left < right ? 1 : 0;
    case Kind::at_most:
      return left <= right ? 1 : 0;
    case Kind::more:
      return left > right ? 1 : 0;
    case Kind::at_least:
      return left >= right ? 1 : 0;
    case Kind::equal:
      return left == right ? 1 : 0;
    case Kind::unequal:
      return left != right ? 1 : 0;
    default:
      break;
  }
  if (too_large) throw Error("a number of this constraint is beyond 64 bits", text_);
  return out;
}

}  // namespace gpucast::search
