// The ledger's lines that follow from a capture: the memory of its libraries in addition to the recorded allocations.
#pragma once

#include <string>
#include <vector>

#include "gpucast/ledger.h"
#include "gpucast/trace.h"

namespace gpucast {

// One line for each library's own memory (its highest sum), and one for device memory that other code allocated without PyTorch.
std::vector<LedgerLine> ledger_from_capture(const Trace& trace);

// How to get the workspace sizes from cuDNN, if the run did not; "" if the capture has no reason why it did not.
std::string how_to_ask_cudnn(const Process& process);

}  // namespace gpucast
