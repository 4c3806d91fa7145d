// Virtual cuDNN: recurrent networks. The weight space is cuDNN's documented one: for every pseudo-layer (layer, direction)
// the input matrices of all gates, then the recurrent ones, then the projection; after all of them the biases likewise.
#include "src/vgpu/libs/cudnn_types.h"
#include "src/vgpu/libs/cudnn_workspace.h"

namespace {

using namespace gpucast::vgpu::cudnn;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

struct Rnn {
  int cell = 0, bias_mode = 0, type = 0;
  int64_t input_size = 0, hidden_size = 0, projection_size = 0, layers = 0, directions = 1;
  bool dropout = false;

  int64_t gates() const { return rnn_gates(cell); }
  bool projects() const { return cell == 2 && projection_size > 0 && projection_size < hidden_size; }
  int64_t output_size() const { return projects() ? projection_size : hidden_size; }
  int64_t layer_input(int64_t pseudo_layer) const { return pseudo_layer < directions ? input_size : output_size() * directions; }
  int64_t biases() const { return bias_mode == 0 ? 0 : bias_mode == 2 ? 2 : 1; }

  // Elements of all matrices of one pseudo-layer, and of its biases.
  int64_t matrix_elements(int64_t pseudo_layer) const {
    return gates() * hidden_size * (layer_input(pseudo_layer) + output_size()) + (projects() ? projection_size * hidden_size : 0);
  }
  int64_t bias_elements() const { return biases() * gates() * hidden_size; }
  int64_t all_matrix_elements() const {
    int64_t sum = 0;
    for (int64_t layer = 0; layer < layers * directions; ++layer) sum += matrix_elements(layer);
    return sum;
  }
  int64_t elements() const { return all_matrix_elements() + layers * directions * bias_elements(); }
};

struct RnnData {
  int type = 0, layout = 0;
  int64_t steps = 0, batch = 0, width = 0;
  std::vector<int> lengths;
};

RnnProblem problem(const Rnn& rnn, const RnnData& x, bool training) {
  return {rnn.cell, rnn.input_size, rnn.hidden_size,      rnn.output_size(), rnn.layers, rnn.directions,
          x.steps,  x.batch,        type_bytes(rnn.type), training,          rnn.dropout};
}

int run(Handle* handle, const char* name, const Rnn* rnn, const RnnData* x, void* workspace, size_t workspace_bytes, size_t reserve_bytes) {
  if (!handle || !rnn || !x) return kBadParamNullPointer;
  if (workspace_bytes) gpucast::vgpu::log_workspace("cudnn", number(workspace), workspace_bytes);
  static const char* const cells[] = {"relu", "tanh", "lstm", "gru"};
  launched("cudnn", name, number(handle->stream),
           {{"type", type_name(rnn->type)},
            {"cell", rnn->cell >= 0 && rnn->cell < 4 ? cells[rnn->cell] : "other"},
            {"input_size", rnn->input_size},
            {"hidden_size", rnn->hidden_size},
            {"layers", rnn->layers},
            {"directions", rnn->directions},
            {"steps", x->steps},
            {"batch", x->batch},
            {"workspace_bytes", workspace_bytes},
            {"reserve_bytes", reserve_bytes}});
  return kSuccess;
}

}  // namespace

GPUCAST_EXPORT int cudnnCreateRNNDescriptor(Rnn** rnn) {
  if (!rnn) return kBadParamNullPointer;
  *rnn = new Rnn;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnDestroyRNNDescriptor(Rnn* rnn) {
  delete rnn;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetRNNDescriptor_v8(Rnn* rnn, int, int cell, int bias_mode, int direction, int, int type, int, int,
                                            int32_t input_size, int32_t hidden_size, int32_t projection_size, int32_t layers, void* dropout,
                                            uint32_t) {
  if (!rnn) return kBadParamNullPointer;
  if (hidden_size < 1 || layers < 1) return kBadParam;
  *rnn = {cell, bias_mode, type, input_size, hidden_size, projection_size, layers, direction == 1 ? 2 : 1, dropout != nullptr};
  return kSuccess;
}
GPUCAST_EXPORT int cudnnRNNSetClip_v8(Rnn* rnn) { return rnn ? kSuccess : kBadParamNullPointer; }
GPUCAST_EXPORT int cudnnRNNSetClip_v9(Rnn* rnn) { return rnn ? kSuccess : kBadParamNullPointer; }
GPUCAST_EXPORT int cudnnBuildRNNDynamic(Handle*, Rnn* rnn, int) { return rnn ? kSuccess : kBadParamNullPointer; }

GPUCAST_EXPORT int cudnnCreateRNNDataDescriptor(RnnData** data) {
  if (!data) return kBadParamNullPointer;
  *data = new RnnData;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnDestroyRNNDataDescriptor(RnnData* data) {
  delete data;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetRNNDataDescriptor(RnnData* data, int type, int layout, int steps, int batch, int width, const int* lengths,
                                             void*) {
  if (!data) return kBadParamNullPointer;
  *data = {type, layout, steps, batch, width, lengths ? std::vector<int>(lengths, lengths + batch) : std::vector<int>{}};
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetRNNDataDescriptor(RnnData* data, int* type, int* layout, int* steps, int* batch, int* width, int requested,
                                             int* lengths, void*) {
  if (!data) return kBadParamNullPointer;
  if (type) *type = data->type;
  if (layout) *layout = data->layout;
  if (steps) *steps = static_cast<int>(data->steps);
  if (batch) *batch = static_cast<int>(data->batch);
  if (width) *width = static_cast<int>(data->width);
  for (size_t i = 0; lengths && i < data->lengths.size() && i < static_cast<size_t>(requested); ++i) lengths[i] = data->lengths[i];
  return kSuccess;
}

GPUCAST_EXPORT int cudnnGetRNNWeightSpaceSize(Handle*, Rnn* rnn, size_t* size_bytes) {
  if (!rnn || !size_bytes) return kBadParamNullPointer;
  *size_bytes = static_cast<size_t>(rnn->elements()) * type_bytes(rnn->type);
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetRNNTempSpaceSizes(Handle*, Rnn* rnn, int mode, RnnData* x, size_t* workspace_bytes, size_t* reserve_bytes) {
  if (!rnn || !x) return kBadParamNullPointer;
  const RnnProblem asked = problem(*rnn, *x, mode == 1);
  if (workspace_bytes) *workspace_bytes = rnn_workspace_bytes(asked);
  if (reserve_bytes) *reserve_bytes = rnn_reserve_bytes(asked);
  return kSuccess;
}
// The place of matrix and bias number `id` of a pseudo-layer: 0 to gates-1 input, then recurrent, then the projection.
GPUCAST_EXPORT int cudnnGetRNNWeightParams(Handle*, Rnn* rnn, int32_t pseudo_layer, size_t, const char* weights, int32_t id, Tensor* matrix,
                                           const char** matrix_address, Tensor* bias, const char** bias_address) {
  if (!rnn) return kBadParamNullPointer;
  const int64_t gates = rnn->gates(), hidden = rnn->hidden_size, input = rnn->layer_input(pseudo_layer);
  if (pseudo_layer < 0 || pseudo_layer >= rnn->layers * rnn->directions || id < 0 || id > 2 * gates ||
      (id == 2 * gates && !rnn->projects()))
    return kBadParam;
  int64_t offset = 0;
  for (int64_t layer = 0; layer < pseudo_layer; ++layer) offset += rnn->matrix_elements(layer);
  int64_t rows = hidden, columns = 0;
  if (id < gates) {
    columns = input;
    offset += id * hidden * input;
  } else if (id < 2 * gates) {
    columns = rnn->output_size();
    offset += gates * hidden * input + (id - gates) * hidden * columns;
  } else {
    rows = rnn->projection_size;
    columns = hidden;
    offset += gates * hidden * (input + rnn->output_size());
  }
  const size_t element_bytes = type_bytes(rnn->type);
  if (matrix) *matrix = {rnn->type, 0, {1, rows, columns}, {rows * columns, columns, 1}};
  if (matrix_address) *matrix_address = weights ? weights + static_cast<size_t>(offset) * element_bytes : nullptr;

  const bool has_bias =
      id < 2 * gates && (rnn->bias_mode == 2 || (rnn->bias_mode == 1 && id < gates) || (rnn->bias_mode == 3 && id >= gates));
  if (!has_bias) {
    if (bias) *bias = {rnn->type, 0, {}, {}};
    if (bias_address) *bias_address = nullptr;
    return kSuccess;
  }
  const int64_t bias_index = rnn->bias_mode == 3 ? id - gates : id;
  const int64_t bias_offset = rnn->all_matrix_elements() + pseudo_layer * rnn->bias_elements() + bias_index * hidden;
  if (bias) *bias = {rnn->type, 0, {1, hidden, 1}, {hidden, 1, 1}};
  if (bias_address) *bias_address = weights ? weights + static_cast<size_t>(bias_offset) * element_bytes : nullptr;
  return kSuccess;
}

GPUCAST_EXPORT int cudnnRNNForward(Handle* handle, Rnn* rnn, int, const int32_t*, RnnData* x, const void*, RnnData*, void*, Tensor*,
                                   const void*, void*, Tensor*, const void*, void*, size_t, const void*, size_t workspace_bytes,
                                   void* workspace, size_t reserve_bytes, void*) {
  return run(handle, "cudnnRNNForward", rnn, x, workspace, workspace_bytes, reserve_bytes);
}
GPUCAST_EXPORT int cudnnRNNBackwardData_v8(Handle* handle, Rnn* rnn, const int32_t*, RnnData*, const void*, const void*, RnnData* x, void*,
                                           Tensor*, const void*, const void*, void*, Tensor*, const void*, const void*, void*, size_t,
                                           const void*, size_t workspace_bytes, void* workspace, size_t reserve_bytes, void*) {
  return run(handle, "cudnnRNNBackwardData_v8", rnn, x, workspace, workspace_bytes, reserve_bytes);
}
GPUCAST_EXPORT int cudnnRNNBackwardWeights_v8(Handle* handle, Rnn* rnn, int, const int32_t*, RnnData* x, const void*, Tensor*, const void*,
                                              RnnData*, const void*, size_t, void*, size_t workspace_bytes, void* workspace,
                                              size_t reserve_bytes, void*) {
  return run(handle, "cudnnRNNBackwardWeights_v8", rnn, x, workspace, workspace_bytes, reserve_bytes);
}

// ---- cuDNN 8's older interface, of PyTorch before 2.4 --------------------------------------------------------------------------------
// In this interface each call brings the input's width; the descriptor does not have it.
namespace {

Rnn* with_input(Rnn* rnn, const Tensor* x) {
  if (rnn && x && x->dims.size() > 1) rnn->input_size = x->dims[1];
  return rnn;
}
// `x`: the input of each step, with the batch of that step.
RnnData steps_of(int steps, const Tensor* const* x) {
  RnnData data;
  data.steps = steps;
  if (x && x[0] && x[0]->dims.size() > 1) {
    data.batch = x[0]->dims[0];
    data.width = x[0]->dims[1];
  }
  return data;
}
int temporary_bytes(Rnn* rnn, int steps, const Tensor* const* x, size_t* size_bytes, bool reserve) {
  if (!rnn || !x || !size_bytes) return kBadParamNullPointer;
  const RnnProblem asked = problem(*with_input(rnn, x[0]), steps_of(steps, x), true);
  *size_bytes = reserve ? rnn_reserve_bytes(asked) : rnn_workspace_bytes(asked);
  return kSuccess;
}
int run_steps(Handle* handle, const char* name, const Rnn* rnn, int steps, const Tensor* const* x, void* workspace, size_t workspace_bytes,
              size_t reserve_bytes) {
  const RnnData data = steps_of(steps, x);
  return run(handle, name, rnn, &data, workspace, workspace_bytes, reserve_bytes);
}

}  // namespace

GPUCAST_EXPORT int cudnnSetRNNDescriptor_v6(Handle*, Rnn* rnn, int hidden_size, int layers, void* dropout, int, int direction, int cell,
                                            int, int type) {
  if (!rnn) return kBadParamNullPointer;
  if (hidden_size < 1 || layers < 1) return kBadParam;
  constexpr int kTwoBiases = 2;
  *rnn = {cell, kTwoBiases, type, 0, hidden_size, hidden_size, layers, direction == 1 ? 2 : 1, dropout != nullptr};
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetRNNProjectionLayers(Handle*, Rnn* rnn, int projection_size, int) {
  if (!rnn) return kBadParamNullPointer;
  rnn->projection_size = projection_size;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetRNNMatrixMathType(Rnn* rnn, int) { return rnn ? kSuccess : kBadParamNullPointer; }

GPUCAST_EXPORT int cudnnGetRNNParamsSize(Handle* handle, Rnn* rnn, const Tensor* x, size_t* size_bytes, int) {
  return cudnnGetRNNWeightSpaceSize(handle, with_input(rnn, x), size_bytes);
}
GPUCAST_EXPORT int cudnnGetRNNWorkspaceSize(Handle*, Rnn* rnn, int steps, const Tensor* const* x, size_t* size_bytes) {
  return temporary_bytes(rnn, steps, x, size_bytes, false);
}
GPUCAST_EXPORT int cudnnGetRNNTrainingReserveSize(Handle*, Rnn* rnn, int steps, const Tensor* const* x, size_t* size_bytes) {
  return temporary_bytes(rnn, steps, x, size_bytes, true);
}
GPUCAST_EXPORT int cudnnGetRNNLinLayerMatrixParams(Handle* handle, Rnn* rnn, int pseudo_layer, const Tensor* x, void*, const char* weights,
                                                   int id, Tensor* matrix, const char** address) {
  return cudnnGetRNNWeightParams(handle, with_input(rnn, x), pseudo_layer, 0, weights, id, matrix, address, nullptr, nullptr);
}
GPUCAST_EXPORT int cudnnGetRNNLinLayerBiasParams(Handle* handle, Rnn* rnn, int pseudo_layer, const Tensor* x, void*, const char* weights,
                                                 int id, Tensor* bias, const char** address) {
  return cudnnGetRNNWeightParams(handle, with_input(rnn, x), pseudo_layer, 0, weights, id, nullptr, nullptr, bias, address);
}

GPUCAST_EXPORT int cudnnRNNForwardInference(Handle* handle, Rnn* rnn, int steps, const Tensor* const* x, const void*, void*, const void*,
                                            void*, const void*, void*, const void*, void*, void*, void*, void*, void*, void*,
                                            void* workspace, size_t workspace_bytes) {
  return run_steps(handle, "cudnnRNNForwardInference", rnn, steps, x, workspace, workspace_bytes, 0);
}
GPUCAST_EXPORT int cudnnRNNForwardTraining(Handle* handle, Rnn* rnn, int steps, const Tensor* const* x, const void*, void*, const void*,
                                           void*, const void*, void*, const void*, void*, void*, void*, void*, void*, void*,
                                           void* workspace, size_t workspace_bytes, void*, size_t reserve_bytes) {
  return run_steps(handle, "cudnnRNNForwardTraining", rnn, steps, x, workspace, workspace_bytes, reserve_bytes);
}
GPUCAST_EXPORT int cudnnRNNBackwardData(Handle* handle, Rnn* rnn, int steps, const Tensor* const* y, const void*, void*, const void*, void*,
                                        const void*, void*, const void*, void*, const void*, void*, const void*, void*, const void*, void*,
                                        void*, void*, void*, void*, void*, void* workspace, size_t workspace_bytes, void*,
                                        size_t reserve_bytes) {
  return run_steps(handle, "cudnnRNNBackwardData", rnn, steps, y, workspace, workspace_bytes, reserve_bytes);
}
GPUCAST_EXPORT int cudnnRNNBackwardWeights(Handle* handle, Rnn* rnn, int steps, const Tensor* const* x, const void*, void*, const void*,
                                           void*, const void*, const void* workspace, size_t workspace_bytes, void*, void*, const void*,
                                           size_t reserve_bytes) {
  return run_steps(handle, "cudnnRNNBackwardWeights", rnn, steps, x, const_cast<void*>(workspace), workspace_bytes, reserve_bytes);
}
