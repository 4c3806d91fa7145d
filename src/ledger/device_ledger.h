// The ledger's lines that a capture itself knows: what its libraries take beside the recorded allocations.
#pragma once

#include <string>
#include <vector>

#include "gpucast/ledger.h"
#include "gpucast/trace.h"

namespace gpucast {

// One line for each library's own memory (its highest sum), one for device memory that some code allocated itself.
std::vector<LedgerLine> ledger_from_capture(const Trace& trace);

// What would have cuDNN asked for its workspaces, where it was not; "" when the capture does not say why.
std::string how_to_ask_cudnn(const Process& process);

}  // namespace gpucast
