// The folders of the XDG Base Directory Specification.
#pragma once

#include <string>

namespace gpucast {

// The folder that the variable names ("XDG_CACHE_HOME"), else `otherwise` (".cache") in the user's home. "": there is neither.
std::string user_folder(const char* variable, const char* otherwise);

}  // namespace gpucast
