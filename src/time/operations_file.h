// Operations as JSON lines: one object a line, with the names of operation.h. docs/reference/operations-format.md.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/time/operation.h"

namespace gpucast {

// One line. `where`: the line's place in the file, for the Error of a line that is no operation. At least 64 bytes after the end of `line`
// must be readable (GzipLines guarantees that).
Operation read_operation(std::string_view line, const std::function<std::string()>& where);

// All operations of a file, plain or gzip; "-" is standard input. Empty lines are skipped.
void read_operations(const std::string& path, const std::function<void(const Operation&)>& take);

}  // namespace gpucast
