// Shared by the files of the virtual cuDNN: status codes, the handle, descriptors of tensors, data types.
#pragma once

#include "src/vgpu/libs/call.h"

namespace gpucast::vgpu::cudnn {

enum Status : int {
  kSuccess = 0,
  kBadParam = 2000,
  kBadParamNullPointer = 2002,
  kNotFinalized = 2004,
  kSizeInsufficient = 2006,
  kNotSupported = 3000
};

struct Handle {
  void* stream = nullptr;
};

// A tensor, or a filter (then `format` is its memory layout).
struct Tensor {
  int type = 0;
  int format = 0;
  std::vector<int64_t> dims, strides;
};

// cudnnDataType_t
inline const char* type_name(int type) {
  static const char* const names[] = {"float32",     "float64",     "float16",     "int8",        "int32",       "int8x4",
                                      "uint8",       "uint8x4",     "int8x32",     "bfloat16",    "int64",       "bool",
                                      "float8_e4m3", "float8_e5m2", "fast_float8", "float8_e8m0", "float4_e2m1", "int4"};
  return type >= 0 && type < 18 ? names[type] : "other";
}
inline size_t type_bytes(int type) {
  static const size_t bytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1, 4, 1, 1, 1};
  return type >= 0 && type < 18 ? bytes[type] : 4;
}

inline size_t tensor_bytes(const Tensor& tensor) {
  size_t last = 0;  // the index of the last element
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] <= 0) return 0;
    last += static_cast<size_t>((tensor.dims[i] - 1) * tensor.strides[i]);
  }
  return tensor.dims.empty() ? 0 : (last + 1) * type_bytes(tensor.type);
}

}  // namespace gpucast::vgpu::cudnn
