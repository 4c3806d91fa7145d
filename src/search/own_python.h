// Our own programs in Python that read a user's files: they run in the user's Python, whose version and modules the files need.
#pragma once

#include <string>
#include <vector>

#include "src/base/json.h"

namespace gpucast::search {

// The command's Python, else the one on PATH. Throws Error with `to_do` if there is none.
std::string python_of(const std::vector<std::string>& command, const std::string& folder, const std::string& to_do);

// What `program`, a file in our python folder, prints. Null: it ended early.
Json answer_of_python(const std::string& python, const std::string& program, const std::vector<std::string>& words);

}  // namespace gpucast::search
