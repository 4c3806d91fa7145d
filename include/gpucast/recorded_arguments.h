// What operators and calls of libraries were called with, as far as their times follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpucast {

struct TensorArgument {
  std::string dtype;  // "float32"
  std::vector<int64_t> sizes, strides;
  bool on_card = true;
};

// other: null, texts, numbers with a fraction, and what a later version adds.
enum class ArgumentKind : uint8_t { tensor, tensors, integer, integers, boolean, other };
struct OperatorArgument {
  ArgumentKind kind = ArgumentKind::other;
  bool boolean = false;
  int64_t integer = 0;
  std::vector<int64_t> integers;
  std::vector<TensorArgument> tensors;  // tensor: one
};

struct GraphTensor {
  std::string type;
  std::vector<int64_t> shape;
  bool is_virtual = false;  // it lives inside the kernel
};

// One operation of a graph that cuDNN executes.
struct GraphOperation {
  std::string op, type;
  std::vector<int64_t> x, w, y, x_strides, stride;  // of a convolution
  std::vector<GraphTensor> tensors;                 // of others
};

// A call's named arguments. Each library has its own; what a call does not name is unset or as it is here.
struct CallArguments {
  std::string type, type_c;
  std::optional<int64_t> m, n, k;
  std::optional<int64_t> batch;  // how many products; of a recurrent network: how many samples
  int64_t compute_type = 0;      // as cublasComputeType_t
  bool a_transposed = true, b_transposed = true;
  std::vector<int64_t> shape, strides;  // batch norm's
  GraphOperation convolution;           // of a call that is one
  std::vector<GraphOperation> operations;
  std::string cell;  // "lstm", "gru"
  int64_t layers = 1, directions = 1, hidden_size = 0, input_size = 0, steps = 0;
  int64_t count = 0, world = 1;  // NCCL
};

}  // namespace gpucast
