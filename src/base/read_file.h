#pragma once

#include <string>

namespace gpucast {

// All of a file; "" when it cannot be read.
std::string read_file(const std::string& path);

}  // namespace gpucast
