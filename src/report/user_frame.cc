#include "src/report/user_frame.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace gpucast {
namespace {

// Snapshots may also have frames of C and C++ code.
bool is_python_file(const std::string& frame) {
  const std::string_view file = std::string_view(frame).substr(0, frame.find(':'));
  if (file.empty() || file == "??") return false;
  const size_t dot = file.rfind('.');
  static constexpr std::string_view kCompiled[] = {".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".cuh", ".o", ".S", ".so", ".rs"};
  return dot == std::string_view::npos || std::find(std::begin(kCompiled), std::end(kCompiled), file.substr(dot)) == std::end(kCompiled);
}

// Profiler traces have paths relative to packages ("torch/nn/modules/conv.py"); captures and snapshots have absolute paths.
bool is_library(std::string_view frame) {
  static constexpr std::string_view kParts[] = {"/torch/", "site-packages", "<frozen", "gpucast/profile"};
  return frame.substr(0, 6) == "torch/" || std::any_of(std::begin(kParts), std::end(kParts),
                                                       [&](std::string_view part) { return frame.find(part) != std::string_view::npos; });
}

}  // namespace

std::string user_frame(const Place& place) {
  const auto found = std::find_if(place.stack.begin(), place.stack.end(),
                                  [](const std::string& frame) { return is_python_file(frame) && !is_library(frame); });
  return found == place.stack.end() ? "" : *found;
}

}  // namespace gpucast
