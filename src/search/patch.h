// Points of an advice as patches of the user's script. python/patch places the lines, in the Python that ran the script.
#pragma once

#include <string>
#include <vector>

#include "gpucast/advise.h"

namespace gpucast::search {

// Throws Error if nothing can be written to `path`, a file or a folder, or if it is a file that is no patch of ours. For the time before
// the search.
void check_patch_path(const std::string& path);

// A file: the best point, or the smallest if none fits. A folder: each point of the front. Throws Error: a script was changed since its
// run, or a file cannot be written.
std::vector<Patch> write_patches(const Advice& advice, const std::string& path);

}  // namespace gpucast::search
