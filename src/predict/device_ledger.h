// The ledger's lines that a capture itself knows: what its libraries take beside the recorded allocations.
#pragma once

#include <cstdint>
#include <vector>

#include "gpucast/ledger.h"
#include "gpucast/trace.h"

namespace gpucast {

// One line for each library's own memory (its highest sum), one for device memory that some code allocated itself, and one for
// the workspaces that cuDNN would ask PyTorch for, where the job runs convolutions (docs/explanation/accuracy.md).
std::vector<LedgerLine> ledger_from_capture(const Trace& trace, int64_t peak_reserved_bytes);

}  // namespace gpucast
