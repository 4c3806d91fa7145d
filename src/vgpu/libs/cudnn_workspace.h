// Scratch memory that cuDNN requires from its caller. PyTorch allocates it, so these sizes are part of a job's peak. All of cuDNN's size
// queries are answered here and nowhere else: NVIDIA publishes no formulas, so each function is a model, and its comment says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpucast::vgpu::cudnn {

enum class ConvolutionKind { forward, backward_data, backward_filter };

struct ConvolutionProblem {
  ConvolutionKind kind;
  int type;                        // cudnnDataType_t of the data
  std::vector<int64_t> x, w, y;    // dimensions, channels second; w: outputs, inputs per group, window
  std::vector<int64_t> x_strides;  // in elements; channel stride 1: channels last
  std::vector<int64_t> padding, stride, dilation;
  int engine;  // the number of the offered plan
};
size_t convolution_workspace_bytes(const ConvolutionProblem& problem);

// cudnnBatchNormMode_t: 1 spatial, 2 spatial persistent (PyTorch's mode for channels last).
struct BatchNormProblem {
  int mode;
  int type;
  std::vector<int64_t> x, x_strides;
};
size_t batch_norm_forward_workspace_bytes(const BatchNormProblem& problem);
size_t batch_norm_backward_workspace_bytes(const BatchNormProblem& problem);
size_t batch_norm_reserve_bytes(const BatchNormProblem& problem);  // kept from forward to backward

struct RnnProblem {
  int cell;                                      // cudnnRNNMode_t: 0 relu, 1 tanh, 2 LSTM, 3 GRU
  int64_t input_size, hidden_size, output_size;  // output_size: the projection's, or hidden_size
  int64_t layers, directions, steps, batch;
  size_t element_bytes;
  bool training;
  bool dropout;
};
inline int64_t rnn_gates(int cell) { return cell == 2 ? 4 : cell == 3 ? 3 : 1; }
size_t rnn_workspace_bytes(const RnnProblem& problem);
size_t rnn_reserve_bytes(const RnnProblem& problem);  // kept from forward to backward; 0 for inference

size_t ctc_loss_workspace_bytes(int64_t steps, int64_t batch, int64_t alphabet, int64_t longest_label);
size_t dropout_state_bytes();

}  // namespace gpucast::vgpu::cudnn
