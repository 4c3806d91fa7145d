// An option in the words of a command: "--batch 8", "--batch=8", "train.batch=8", "SOLVER.IMS_PER_BATCH 8".
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace gpucast::search {

// Unset: the command does not have it.
std::optional<std::string> value_of_option(const std::vector<std::string>& command, const std::string& option);

// Gives the option this value where it stands. False: the command does not have it, and stays as it is.
bool set_option(const std::string& option, const std::string& value, std::vector<std::string>* command);

// The same; an option that the command does not have is added at its end.
std::vector<std::string> with_option(std::vector<std::string> command, const std::string& option, const std::string& value);

}  // namespace gpucast::search
