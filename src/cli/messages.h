// How subcommands print.
#pragma once

namespace gpucast::cli {

// Standard output is a terminal, and NO_COLOR is not set.
bool colour_wanted();

}  // namespace gpucast::cli
