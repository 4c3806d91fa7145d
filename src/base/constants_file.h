// Fitted and chosen numbers as data. They come in groups, and each group has a `source` that says where its numbers come from:
//     {"schema_version": 1, "pack": {"mps": {"cost": 1.21, "low": 0.79, "high": 1.30, "source": "..."}}}
// data/*.json is built into the command. A user's file (--constants) has the same form and may have any section; it replaces built-in
// numbers by name. docs/reference/time-constants.md describes the format. All functions throw Error with the problem and its place.
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

// Parses one of data/*.json, which are built in.
Json parse_built_in_constants(const char* text, const std::string& where);

// Parses a user's file; "" gives an object without sections. It may have the sections of every part of gpucast.
Json parse_constants_file(const std::string& text);

// Adds a group's numbers under "GROUP.NAME". Each must be finite and above 0; "low" numbers at most 1, "high" numbers at least 1. `known`:
// the allowed names, without the middle word of "KIND.PRECISION.NAME"; nullptr for built-in data.
void read_constant_group(const Json& group, const std::string& group_name, const std::string& where, const ConstantNames* known,
                         ConstantNumbers* out);

// A section of plain groups: the built-in numbers, replaced by the user's where given.
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
