#include "src/cli/messages.h"

#include <unistd.h>

#include <cstdlib>

namespace gpucast::cli {

bool colour_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace gpucast::cli
