// How many convolutions of which kind a job leaves to cuDNN.
#pragma once

#include <cstdint>

namespace gpucast {

// Convolutions that cuDNN would choose an algorithm and a workspace for, by kind. One that fits several counts under the first.
struct Convolutions {
  int64_t few_channels = 0;  // at most 4 input channels: the first layer of a model of images
  int64_t depthwise = 0;     // a group for each input channel
  int64_t grouped = 0;       // several groups
  int64_t pointwise = 0;     // a window of 1 x 1
  int64_t dense = 0;
  int64_t unknown = 0;      // shapes not known
  int64_t not_float32 = 0;  // of all these
  int64_t asked = 0;        // of all these: whose workspace the user's own cuDNN chose, so that it is a part of reserved
  int64_t count() const { return few_channels + depthwise + grouped + pointwise + dense + unknown; }
};

}  // namespace gpucast
