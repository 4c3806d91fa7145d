#include "src/base/user_folder.h"

#include <cstdlib>

namespace gpucast {

std::string user_folder(const char* variable, const char* otherwise) {
  const char* folder = std::getenv(variable);
  if (folder != nullptr && *folder == '/') return folder;
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/" + otherwise : "";
}

}  // namespace gpucast
