// Buffers of parallel training, recognized by the code that allocated them: DDP's gradient buckets, parameters that FSDP and ZeRO gather,
// gradients that they reduce, and tensors that pipeline stages receive.
#pragma once

#include "gpucast/trace.h"

namespace gpucast {

bool is_communication(const Trace& trace, StackId stack);

}  // namespace gpucast
