// The ranks of a job that `gpucast run --world-size` starts itself, once for each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpucast::run {

// The launcher that starts several ranks, if this command is one: "torchrun". Words after the script's name are the script's own.
std::optional<std::string> launcher_in(const std::vector<std::string>& command);

// The ranks in a text like "0,8", the value of `option`. Throws Error for one that a job of this many does not have.
std::vector<int64_t> parse_ranks(const char* option, const std::string& text, int64_t world_size);

// Throws Error if the command starts ranks, as `option` does.
void check_starts_no_ranks(const char* option, const std::vector<std::string>& command);

// Whether --world-size (0: not given) and --ranks ("": not given) fit together and to the command. Throws Error.
void check_own_ranks(const std::vector<std::string>& command, int64_t world_size, const std::string& ranks);

}  // namespace gpucast::run
