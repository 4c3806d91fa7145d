// Fitted and chosen numbers as data. They come in groups, and each group has a `source` that says where its numbers come from:
//     {"schema_version": 1, "pack": {"mps": {"cost": 1.21, "low": 0.79, "high": 1.30, "source": "..."}}}
// data/*.json is built into the command; a user's file (--constants) has the same form, may hold any section, and goes over it name by
// name. docs/reference/time-constants.md has the format. All functions throw Error with what is wrong and where.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "src/base/json.h"

namespace gpucast {

using ConstantNumbers = std::unordered_map<std::string, double>;  // by group and name: "mps.cost"
using ConstantNames = std::unordered_set<std::string>;

[[noreturn]] void reject_constants(const std::string& what, const std::string& where);
// The same, with the candidate that was probably meant.
[[noreturn]] void reject_constants(const std::string& what, const std::string& where, const std::string& word,
                                   const std::vector<std::string>& candidates);

// The text of one of data/*.json, which is built in.
Json parse_built_in_constants(const char* text, const std::string& where);

// The text of a user's file; "" is an object without sections. Its sections are those that any part of gpucast reads.
Json parse_constants_file(const std::string& text);

// Adds a group's numbers under "GROUP.NAME". Each must be finite and above 0; what is called "low" at most 1, "high" at least 1. `known`:
// the names that there are, without the middle word of "KIND.PRECISION.NAME"; nullptr for what is built in.
void read_constant_group(const Json& group, const std::string& group_name, const std::string& where, const ConstantNames* known,
                         ConstantNumbers* out);

// A section of plain groups: the built-in numbers, and a user's over them.
class ConstantSection {
 public:
  // `built_in`: the text of data/NAME.json, whose section is called `name`. `file`: the text of a user's file, or "".
  ConstantSection(const char* name, const char* built_in, const std::string& file);

  double number(std::string_view group, std::string_view name) const;  // throws Error: neither has it
  const ConstantNumbers& numbers() const { return numbers_; }

 private:
  const char* name_;
  ConstantNumbers numbers_;
};

}  // namespace gpucast
