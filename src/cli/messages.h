// Printing for subcommands.
#pragma once

namespace gpucast::cli {

// Whether standard output is a terminal and NO_COLOR is not set.
bool colour_wanted();

}  // namespace gpucast::cli
