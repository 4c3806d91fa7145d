// The options that a script's source declares.
#pragma once

#include <string>
#include <vector>

namespace gpucast::search {

// "--batch-size", ... : texts in quotes that begin with two dashes, in the script that the command runs. Nothing of it is executed.
std::vector<std::string> declared_options(const std::vector<std::string>& command, const std::string& folder);

}  // namespace gpucast::search
