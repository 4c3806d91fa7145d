// Turns a library call's arguments, as the virtual GPU logs them, into an operation.
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

// The shape of a convolution of x[batch, channels, ...] with w. `out`: y's whole shape; only its spatial dimensions are used, up to three.
// x, w and out have the same number of dimensions.
ConvolutionShape convolution_shape(std::span<const int64_t> x, std::span<const int64_t> x_strides, std::span<const int64_t> w,
                                   std::span<const int64_t> out, std::span<const int64_t> stride);

// Makes an operation with a precision and bytes of an element one of fused attention. Backward computes the scores again.
void set_attention(const AttentionShape& shape, Operation* out);

// Bytes of an element, from PyTorch's or our libraries' name of a type ("float32"); 0: unknown.
int type_bytes(std::string_view name);
// The precision of arithmetic on this type.
Precision type_precision(std::string_view name);

}  // namespace gpucast
