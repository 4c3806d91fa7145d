#include "src/base/read_file.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "gpucast/error.h"

namespace gpucast {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string read_file_or_throw(const std::string& path) {
  const auto fail = [&] {
    throw Error(fmt::format("the file cannot be read: {}", std::strerror(errno)), path, "name a file that you may read");
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail();
  std::string out;
  std::array<char, 1 << 16> part;
  while (const size_t size = std::fread(part.data(), 1, part.size(), file.get())) out.append(part.data(), size);
  if (std::ferror(file.get()) != 0) fail();
  return out;
}

}  // namespace gpucast
