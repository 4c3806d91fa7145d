// Parses amounts of memory that a user wrote.
#pragma once

#include <cstdint>
#include <string>

namespace gpucast {

// Parses "11.5GiB", "800 MiB" or "12345678": 1 B to 16 TiB. Throws Error; `option` ("--capacity") and `example` ("11.5GiB") are for its
// message.
int64_t parse_size(const std::string& text, const std::string& option, const std::string& example);

}  // namespace gpucast
