// Writes the file of an -o option.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "src/run/capture_file.h"

namespace gpucast::cli {

// `name`: as the user gave it; compressed if it ends in .gz. Returns the path. Throws Error if it cannot be written.
std::string write_output(const std::string& name, run::CaptureFile* target, const std::function<void(std::ostream&)>& write);

}  // namespace gpucast::cli
