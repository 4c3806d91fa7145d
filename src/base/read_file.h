#pragma once

#include <string>

namespace gpucast {

// The whole file; "" if it cannot be read.
std::string read_file(const std::string& path);

// The whole file. Throws Error if it cannot be read.
std::string read_file_or_throw(const std::string& path);

}  // namespace gpucast
