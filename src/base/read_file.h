#pragma once

#include <string>

namespace gpucast {

// The whole file; "" if it cannot be read.
std::string read_file(const std::string& path);

}  // namespace gpucast
