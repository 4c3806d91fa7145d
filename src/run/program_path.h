// Finds the program file of a command's first word.
#pragma once

#include <optional>
#include <string>

namespace gpucast::run {

// The path of `program`, as a shell in this folder would find it. Throws Error with a "did you mean".
std::string find_program(const std::string& program);

// The absolute path, as a shell in `folder` with this variable PATH would find it. Unset: not found.
std::optional<std::string> resolve_program(const std::string& program, const std::string& path_variable, const std::string& folder);

}  // namespace gpucast::run
