// The ledger's lines that a capture itself knows: memory its libraries took from the device past PyTorch's allocator.
#pragma once

#include <vector>

#include "gpucast/ledger.h"
#include "gpucast/trace.h"

namespace gpucast {

// One line for each library's own memory (its highest sum), and one for device memory that some code allocated itself.
std::vector<LedgerLine> ledger_from_capture(const Trace& trace);

}  // namespace gpucast
