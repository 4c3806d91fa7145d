// Checks whether PyTorch accepts these allocator settings.
#pragma once

#include <string>

namespace gpucast {

// Throws Error, with a "did you mean", for settings that the release rejects or does not know. Stricter than PyTorch in one point: a
// number with other characters after it ("64x", "64.5", which PyTorch reads as 64) is an error. `torch_version`: "" for the newest.
void check_alloc_conf(const std::string& alloc_conf, const std::string& torch_version);

}  // namespace gpucast
