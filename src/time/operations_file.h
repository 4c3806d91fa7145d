// Operations as JSON lines: one object a line, with the names of operation.h. docs/reference/operations-format.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/time/operation.h"

namespace gpucast {

// Reads lines one by one. A line that is no operation is an Error that names its number.
class OperationsReader {
 public:
  OperationsReader();
  ~OperationsReader();
  OperationsReader(const OperationsReader&) = delete;
  OperationsReader& operator=(const OperationsReader&) = delete;

  // `where`: the line's place, for the error. At least 64 bytes behind `line` may be read (GzipLines gives them).
  Operation read(std::string_view line, const std::function<std::string()>& where);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of a whole file, plain or gzip; "-" is standard input. Empty lines are skipped.
void read_operations(const std::string& path, const std::function<void(const Operation&)>& take);

}  // namespace gpucast
