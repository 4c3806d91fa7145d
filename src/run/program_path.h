// Which file a command's first word stands for.
#pragma once

#include <optional>
#include <string>

namespace gpucast::run {

// The path that `program` stands for, as a shell here would find it. Throws Error with a "did you mean".
std::string find_program(const std::string& program);

// The absolute path, as a shell in `folder` with this variable PATH would find it. Unset: there is none.
std::optional<std::string> resolve_program(const std::string& program, const std::string& path_variable, const std::string& folder);

}  // namespace gpucast::run
