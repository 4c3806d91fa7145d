#include "src/vgpu/libs/cudnn_workspace.h"

#include <functional>
#include <numeric>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu::cudnn {

// For releases that cannot be asked (before 9.8), these sizes come from measured runs; all others are 0:
// - On the RTX 3060 a forward depthwise convolution in channels-last (ConvNeXt) needs 4 x (bytes of x + bytes of y), on the RTX 4060
//   nothing.
// - On the RTX 3060 a forward convolution in NCHW with 8 channels a group (RegNetY-400MF) needs a copy of x. With this rule, the errors
//   of three runs with three optimizers and batch sizes fall from between 6 and 11 % to at most 2.3 %. With 16 channels (RegNetX-400MF)
//   no scratch memory fits best.
// - Without scratch memory, measured CNN runs (RTX 3060 and 4060, torch 2.6) are estimated 2.3 % too small in the median, and up to 17 %
//   on VGG and MnasNet. Transformers are exact without it.
// - No rule for other models held from one run to another, and repeated runs differ by 20 to 56 MiB.
// - In one recorded run of small convolutions (float32, NCHW, 5x5 windows, batch 1, card unknown), every forward and backward-data pass
//   used a copy of the filter and one float for each output channel: 204800 + 256 bytes for 32 -> 64 channels, 51200 + 128 for 16 -> 32.
//   Some passes used 32768 bytes more, and a filter of 30 channels 2048 more.
size_t convolution_workspace_bytes(const ConvolutionProblem& problem) {
  constexpr int kFirstThatCanBeAsked = 90800, kFloat = 0;
  const DeviceProfile& card = profile();
  if (problem.w.size() < 3 || problem.x.size() != problem.w.size()) return 0;
  const int64_t group_channels = problem.w[1], channels = problem.x[1];
  const bool depthwise = group_channels == 1 && channels > 1 && problem.w[0] == channels;
  const bool narrow_groups = group_channels == 8 && channels > 8;
  const bool channels_last = problem.x_strides.size() > 1 && problem.x_strides[1] == 1;
  if (card.cudnn_version >= kFirstThatCanBeAsked || card.compute_major != 8 || card.compute_minor != 6 || problem.engine != 0 ||
      problem.kind != ConvolutionKind::forward || problem.type != kFloat)
    return 0;
  const auto elements = [](const std::vector<int64_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  };
  int64_t floats = 0;
  if (depthwise && channels_last) floats = 4 * (elements(problem.x) + elements(problem.y));
  if (narrow_groups && !channels_last) floats = elements(problem.x);
  return static_cast<size_t>(floats) * sizeof(float);
}

// A recorded run shows 0 for float32 NCHW (spatial): cudnn_batch_norm allocates its output and the two statistics and nothing else, and so
// does backward. For the persistent kernels of channels-last data no figure is published or recorded. PyTorch requests no fused activation,
// so no mask has to be kept, and we assume 0 there too.
size_t batch_norm_forward_workspace_bytes(const BatchNormProblem&) { return 0; }
size_t batch_norm_backward_workspace_bytes(const BatchNormProblem&) { return 0; }
size_t batch_norm_reserve_bytes(const BatchNormProblem&) { return 0; }

// A model. Forward first multiplies a layer's whole input by its gate matrices, and so it holds all gates of one layer. Backward does the
// same for the gradients of the gates.
size_t rnn_workspace_bytes(const RnnProblem& problem) {
  const int64_t gates = problem.steps * problem.batch * problem.directions * rnn_gates(problem.cell) * problem.hidden_size;
  return static_cast<size_t>(gates) * problem.element_bytes;
}

// A model. For every layer, direction, step and sample, backward needs the gates, an LSTM's cell state or a GRU's recurrent candidate, and
// the layer's output for the next layer (twice with dropout: before and after).
size_t rnn_reserve_bytes(const RnnProblem& problem) {
  if (!problem.training) return 0;
  const int64_t cells = problem.steps * problem.batch * problem.directions;
  const int64_t state = problem.cell >= 2 ? problem.hidden_size : 0;
  int64_t elements = cells * problem.layers * (rnn_gates(problem.cell) * problem.hidden_size + state);
  elements += cells * (problem.layers - 1) * problem.output_size * (problem.dropout ? 2 : 1);
  return static_cast<size_t>(elements) * problem.element_bytes;
}

// A model: the forward and the backward variables of every step and extended label (a blank around each symbol), and the
// gradient's copy of the probabilities.
size_t ctc_loss_workspace_bytes(int64_t steps, int64_t batch, int64_t alphabet, int64_t longest_label) {
  return static_cast<size_t>(batch * steps * (2 * (2 * longest_label + 1) + alphabet)) * sizeof(float);
}

// A model: one 48 byte cuRAND state for each thread that fits the card.
size_t dropout_state_bytes() {
  const DeviceProfile& card = profile();
  return static_cast<size_t>(card.multiprocessors) * static_cast<size_t>(card.max_threads_per_multiprocessor) * 48;
}

}  // namespace gpucast::vgpu::cudnn
