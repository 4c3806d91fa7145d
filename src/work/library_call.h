// A library call's arguments, as the virtual GPU logs them -> the operation that it is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "gpucast/recorded_arguments.h"
#include "src/time/operation.h"

namespace gpucast {

struct CallSettings {
  bool tf32_products = false, tf32_convolutions = false;
};

// Unset: a call that is not known, or one that launches nothing (a barrier of no data).
std::optional<Operation> library_call(std::string_view library, std::string_view name, const CallArguments& arguments,
                                      const CallSettings& settings);

// Of a convolution of x[batch, channels, ...] with w; `out`: y's whole shape, of which the dimensions of space count. Up to three of them.
// All three have the same number of dimensions.
ConvolutionShape convolution_shape(std::span<const int64_t> x, std::span<const int64_t> x_strides, std::span<const int64_t> w,
                                   std::span<const int64_t> out, std::span<const int64_t> stride);

// Bytes of an element of PyTorch's or our libraries' name for a type ("float32"); 0: unknown.
int type_bytes(std::string_view name);
// What arithmetic on it runs in.
Precision type_precision(std::string_view name);

}  // namespace gpucast
