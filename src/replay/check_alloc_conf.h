// Would PyTorch take these allocator settings?
#pragma once

#include <string>

namespace gpucast {

// Throws Error for what the release rejects or does not know, with a "did you mean". Stricter than PyTorch in one point: a number
// with something behind it ("64x", "64.5", which PyTorch reads as 64) is an error too. `torch_version`: "" for the newest.
void check_alloc_conf(const std::string& alloc_conf, const std::string& torch_version);

}  // namespace gpucast
