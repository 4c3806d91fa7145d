#pragma once

#include <string>

namespace gpucast {

// A C++ name as written in source, or `name` itself if it is none.
std::string demangled(const std::string& name);

}  // namespace gpucast
