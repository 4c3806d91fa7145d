// The arguments of operators and library calls, as far as their times depend on them.
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
  bool again = false;  // the elements of a tensor before it
};

// other: null, texts, numbers with a fraction, and additions of later versions.
enum class ArgumentKind : uint8_t { tensor, tensors, integer, integers, boolean, number, other };
struct OperatorArgument {
  ArgumentKind kind = ArgumentKind::other;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  // one that is not whole, or was written with a point
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
  std::vector<int64_t> x, w, y, x_strides, stride;  // for a convolution
  std::vector<GraphTensor> tensors;                 // for other operations
};

// A call's named arguments. Each library has its own; arguments that a call does not name are unset, or as here.
struct CallArguments {
  std::string type, type_c;
  std::string type_out;  // of a Fourier transform
  std::optional<int64_t> m, n, k;
  std::optional<int64_t> batch;  // number of products; for a recurrent network: number of samples
  int64_t compute_type = 0;      // as cublasComputeType_t
  bool a_transposed = true, b_transposed = true;
  std::vector<int64_t> shape, strides;  // of batch norm
  GraphOperation convolution;           // for a call that is a convolution
  std::vector<GraphOperation> operations;
  std::string cell;  // "lstm", "gru"
  int64_t layers = 1, directions = 1, hidden_size = 0, input_size = 0, steps = 0;
  int64_t count = 0, world = 1;  // NCCL
  std::string group;             // of NCCL: its communicator
  int64_t peer = -1;             // of NCCL: a message's other end, a rank of the communicator
  bool joins = false;            // of NCCL: together with the call before it (ncclGroupStart)
};

}  // namespace gpucast
