#include "src/base/read_file.h"

#include <fstream>
#include <sstream>

namespace gpucast {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace gpucast
