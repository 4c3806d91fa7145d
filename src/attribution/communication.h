// Buffers of parallel training, told by the code that allocated them: DDP's gradient buckets, the parameters that FSDP and ZeRO gather
// and the gradients they reduce, what pipeline stages receive.
#pragma once

#include "gpucast/trace.h"

namespace gpucast {

bool is_communication(const Trace& trace, StackId stack);

}  // namespace gpucast
