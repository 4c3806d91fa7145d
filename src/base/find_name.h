// Finds a row of a table by a name that a user typed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpucast {

struct NamedRow {
  std::string id;
  std::vector<std::string> keys;  // all its names, without case and separators
};

struct NamedTable {
  std::vector<NamedRow> rows;
  std::string noun;     // "GPU"
  std::string command;  // "gpucast gpus", which lists the names
};

// Lower case, letters and digits only.
std::string letters_and_digits(const std::string& name);

// The number of the row with the key `wanted`. `typed` is the user's word, for the errors: unknown, with the nearest name, or the begin of
// several names.
size_t find_named_row(const NamedTable& table, const std::string& wanted, const std::string& typed);

}  // namespace gpucast
