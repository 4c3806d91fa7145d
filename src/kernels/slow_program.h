// The statements of a kernel's text, as the slow interpreter runs them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/kernels/slow_arithmetic.h"

namespace gpucast::slow {

enum class Does { arithmetic, compare, load, store, atomic, copy, shuffle, vote, reduce_lanes, carry, branch, leave, barrier, nothing };
enum class Sort { none, integer, fp32, special, control, memory };

struct Operand {
  std::vector<int> registers;  // of a vector or of a|b
  bool is_number = false, is_address = false, negated = false;
  uint64_t number = 0;  // of an address what is added to its register
};

struct Statement {
  std::string base;
  Form form;
  Does does = Does::nothing;
  Sort sort = Sort::none;
  Rule rule = nullptr;
  int guard = -1;
  bool guard_negated = false;
  bool leads = false;  // lanes may come here from elsewhere
  bool fills = false;  // the result is cut to the register, not to the type
  std::vector<Operand> operands;
  std::string label;
  size_t target = 0;
  size_t space = 0;  // 0 global, 1 shared, 2 parameters
  uint64_t bytes = 0;
  double flops = 0;
};

struct Loop {
  size_t head = 0, last = 0;
};

struct Program {
  std::vector<Statement> statements;
  std::vector<Loop> loops;
  std::map<std::string, int> registers;
  std::vector<int> widths;
  std::vector<std::pair<int, std::string>> specials;
  std::map<std::string, uint64_t> parameters;
};

Program read_program(const std::string& text);

}  // namespace gpucast::slow
