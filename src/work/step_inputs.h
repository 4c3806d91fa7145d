// How many samples and tokens the observed step trains on, from the inputs of its forwards.
#pragma once

#include <cstdint>

#include "gpucast/trace.h"

namespace gpucast {

struct StepInputs {
  int64_t samples = 0;  // the first dimension of an input; 0: unknown
  int64_t tokens = 0;   // the elements of an input of integers with two dimensions; 0: there is none
};

// A pipeline's step has the batches of all its micro-batches. With gradient accumulation a step has several cycles of forward and backward,
// each with its own batch; the result is their sum. A step with several optimizers, or with forwards that share one backward, counts one
// batch: a GAN's discriminator gets the same number of samples twice. A step that replays a CUDA graph of its forward has the batch of the
// step that captured the graph.
StepInputs step_inputs(const Trace& trace);

}  // namespace gpucast
