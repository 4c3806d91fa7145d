// Constraints of a plan, such as "tp * pp * dp == world && heads % tp == 0".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpucast::search {

// Whole numbers and names with + - * / %, comparisons, &&, || and !, by C's precedence. A comparison is 1 or 0.
class Expression {
 public:
  // The number of a name; unset: there is no such name.
  using Names = std::function<std::optional<int64_t>(const std::string& name)>;

  // Throws Error, with the column of what is wrong.
  explicit Expression(std::string text);

  const std::string& text() const { return text_; }
  std::vector<std::string> names() const;  // each once, in their order
  // Throws Error: a name without a number, a division by 0, a number beyond 64 bits. && and || leave out what does not matter.
  int64_t value(const Names& names) const;

 private:
  friend class ExpressionParser;
  enum class Kind : uint8_t {
    number,
    name,
    negative,
    not_,
    times,
    over,
    rest,
    plus,
    minus,
    less,
    at_most,
    more,
    at_least,
    equal,
    unequal,
    and_,
    or_
  };
  struct Node {
    Kind kind = Kind::number;
    int64_t number = 0;
    std::string name;
    size_t left = 0, right = 0;  // nodes
  };

  int64_t value_of(size_t node, const Names& names) const;
  int64_t calculated(Kind kind, int64_t left, int64_t right) const;

  std::string text_;
  std::vector<Node> nodes_;  // the last one is the whole
};

}  // namespace gpucast::search
