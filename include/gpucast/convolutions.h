// The number of convolutions of each kind that a job passes to cuDNN.
#pragma once

#include <cstdint>

namespace gpucast {

// Convolutions whose algorithm and workspace cuDNN chooses, by kind. One that fits several kinds counts in the first.
struct Convolutions {
  int64_t few_channels = 0;  // at most 4 input channels: the first layer of an image model
  int64_t depthwise = 0;     // one group for each input channel
  int64_t grouped = 0;       // several groups
  int64_t pointwise = 0;     // a window of 1 x 1
  int64_t dense = 0;
  int64_t unknown = 0;      // shapes not known
  int64_t not_float32 = 0;  // of all of the above
  int64_t asked = 0;        // of all of the above: the user's own cuDNN chose their workspace, so it is part of reserved
  int64_t count() const { return few_channels + depthwise + grouped + pointwise + dense + unknown; }
};

}  // namespace gpucast
