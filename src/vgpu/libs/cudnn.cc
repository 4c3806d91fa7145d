// Virtual cuDNN: the library itself and its older interface (descriptors, batch norm, pooling, softmax, dropout, spatial
// transformer, CTC loss, convolutions by algorithm). The graph interface is in cudnn_backend.cc, recurrent networks in
// cudnn_rnn.cc, every size of scratch memory in cudnn_workspace.cc.
#include <algorithm>
#include <cstdio>

#include "src/vgpu/libs/cudnn_types.h"
#include "src/vgpu/libs/cudnn_workspace.h"

namespace {

using namespace gpucast::vgpu::cudnn;
using gpucast::vgpu::Field;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

// Settings of the small descriptors (activation, pooling, CTC, ...), kept if an answer depends on them.
struct Settings {
  int mode = 0;
  int64_t longest_label = 0;
  std::vector<int64_t> padding, stride, dilation, window;
  int groups = 1;
  int math_type = 0;
  float dropout = 0;
  void* states = nullptr;
  unsigned long long seed = 0;
};

int operation(Handle* handle, const char* name, std::initializer_list<Field> fields = {}) {
  if (!handle) return kBadParamNullPointer;
  launched("cudnn", name, number(handle->stream), fields);
  return kSuccess;
}
int operation(Handle* handle, const char* name, const Tensor* tensor) {
  if (!tensor) return kBadParamNullPointer;
  return operation(handle, name, {{"type", type_name(tensor->type)}, {"shape", tensor->dims}});
}

template <typename T>
int create(T** object) {
  if (!object) return kBadParamNullPointer;
  *object = new T;
  return kSuccess;
}
template <typename T>
int destroy(T* object) {
  delete object;
  return kSuccess;
}
int size(size_t* out, size_t value) {
  if (!out) return kBadParamNullPointer;
  *out = value;
  return kSuccess;
}

// Strides of dense data, NCHW or (format 1) NHWC.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& dims, int format) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  if (format == 1 && dims.size() > 2) {
    strides[1] = 1;
    stride = dims[1];
    for (size_t i = dims.size() - 1; i >= 2; --i) {
      strides[i] = stride;
      stride *= dims[i];
    }
    strides[0] = stride;
    return strides;
  }
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}
std::vector<int64_t> wide(const int* values, int count) {
  return values ? std::vector<int64_t>(values, values + count) : std::vector<int64_t>{};
}

int set(Tensor* tensor, int type, int format, std::vector<int64_t> dims, std::vector<int64_t> strides) {
  if (!tensor) return kBadParamNullPointer;
  if (dims.empty() || dims.size() > 8) return kBadParam;
  *tensor = {type, format, std::move(dims), std::move(strides)};
  if (tensor->strides.empty()) tensor->strides = dense_strides(tensor->dims, format);
  return kSuccess;
}

BatchNormProblem batch_norm_problem(int mode, const Tensor& x) { return {mode, x.type, x.dims, x.strides}; }

}  // namespace

// ---- Library ---------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT size_t cudnnGetVersion() { return static_cast<size_t>(gpucast::vgpu::profile().cudnn_version); }
GPUCAST_EXPORT size_t cudnnGetCudartVersion() { return static_cast<size_t>(gpucast::vgpu::profile().runtime_version); }
GPUCAST_EXPORT size_t cudnnGetMaxDeviceVersion() { return 1210; }  // sm_121
GPUCAST_EXPORT int cudnnGetProperty(int part, int* value) {
  if (!value) return kBadParamNullPointer;
  const int version = gpucast::vgpu::profile().cudnn_version;
  *value = gpucast::vgpu::version_part(version, part, version < 10000 ? 1000 : 10000);  // 8902, 90100
  return kSuccess;
}
GPUCAST_EXPORT const char* cudnnGetErrorString(int status) {
  switch (status / 1000) {
    case 0:
      return "CUDNN_STATUS_SUCCESS";
    case 1:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
      return "CUDNN_STATUS_BAD_PARAM";
    case 3:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    case 5:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "CUDNN_STATUS_UNKNOWN";
  }
}
GPUCAST_EXPORT void cudnnGetLastErrorString(char* message, size_t size_bytes) {
  if (message && size_bytes) std::snprintf(message, size_bytes, "gpucast: see the calls without an answer in the report");
}
GPUCAST_EXPORT int cudnnCreate(Handle** handle) { return create(handle); }
GPUCAST_EXPORT int cudnnDestroy(Handle* handle) { return destroy(handle); }
GPUCAST_EXPORT int cudnnSetStream(Handle* handle, void* stream) {
  if (!handle) return kBadParamNullPointer;
  handle->stream = stream;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetStream(Handle* handle, void** stream) {
  if (!handle || !stream) return kBadParamNullPointer;
  *stream = handle->stream;
  return kSuccess;
}
#define SUCCEEDS(Name) \
  GPUCAST_EXPORT int Name() { return kSuccess; }
SUCCEEDS(cudnnSetCallback)
SUCCEEDS(cudnnGraphVersionCheck)
SUCCEEDS(cudnnOpsVersionCheck)
SUCCEEDS(cudnnCnnVersionCheck)
SUCCEEDS(cudnnAdvVersionCheck)

// ---- Tensors and filters ------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cudnnCreateTensorDescriptor(Tensor** tensor) { return create(tensor); }
GPUCAST_EXPORT int cudnnDestroyTensorDescriptor(Tensor* tensor) { return destroy(tensor); }
GPUCAST_EXPORT int cudnnSetTensor4dDescriptor(Tensor* tensor, int format, int type, int n, int c, int h, int w) {
  return set(tensor, type, format, {n, c, h, w}, {});
}
GPUCAST_EXPORT int cudnnSetTensor4dDescriptorEx(Tensor* tensor, int type, int n, int c, int h, int w, int sn, int sc, int sh, int sw) {
  return set(tensor, type, 0, {n, c, h, w}, {sn, sc, sh, sw});
}
GPUCAST_EXPORT int cudnnSetTensorNdDescriptor(Tensor* tensor, int type, int rank, const int* dims, const int* strides) {
  return set(tensor, type, 0, wide(dims, rank), wide(strides, rank));
}
GPUCAST_EXPORT int cudnnSetTensorNdDescriptorEx(Tensor* tensor, int format, int type, int rank, const int* dims) {
  return set(tensor, type, format, wide(dims, rank), {});
}
GPUCAST_EXPORT int cudnnGetTensorNdDescriptor(const Tensor* tensor, int requested, int* type, int* rank, int* dims, int* strides) {
  if (!tensor || !type || !rank) return kBadParamNullPointer;
  *type = tensor->type;
  *rank = static_cast<int>(tensor->dims.size());
  for (int i = 0; i < std::min(requested, *rank); ++i) {
    if (dims) dims[i] = static_cast<int>(tensor->dims[static_cast<size_t>(i)]);
    if (strides) strides[i] = static_cast<int>(tensor->strides[static_cast<size_t>(i)]);
  }
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetTensor4dDescriptor(const Tensor* tensor, int* type, int* n, int* c, int* h, int* w, int* sn, int* sc, int* sh,
                                              int* sw) {
  int rank = 0, dims[4] = {}, strides[4] = {};
  if (const int status = cudnnGetTensorNdDescriptor(tensor, 4, type, &rank, dims, strides)) return status;
  if (rank != 4) return kBadParam;
  int* const out[] = {n, c, h, w, sn, sc, sh, sw};
  for (int i = 0; i < 4; ++i) {
    if (out[i]) *out[i] = dims[i];
    if (out[i + 4]) *out[i + 4] = strides[i];
  }
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetTensorSizeInBytes(const Tensor* tensor, size_t* size_bytes) {
  return tensor ? size(size_bytes, tensor_bytes(*tensor)) : static_cast<int>(kBadParamNullPointer);
}
GPUCAST_EXPORT int cudnnCreateFilterDescriptor(Tensor** filter) { return create(filter); }
GPUCAST_EXPORT int cudnnDestroyFilterDescriptor(Tensor* filter) { return destroy(filter); }
GPUCAST_EXPORT int cudnnSetFilter4dDescriptor(Tensor* filter, int type, int format, int k, int c, int h, int w) {
  return set(filter, type, format, {k, c, h, w}, {});
}
GPUCAST_EXPORT int cudnnSetFilterNdDescriptor(Tensor* filter, int type, int format, int rank, const int* dims) {
  return set(filter, type, format, wide(dims, rank), {});
}
GPUCAST_EXPORT int cudnnGetFilterNdDescriptor(const Tensor* filter, int requested, int* type, int* format, int* rank, int* dims) {
  if (!filter || !format) return kBadParamNullPointer;
  *format = filter->format;
  return cudnnGetTensorNdDescriptor(filter, requested, type, rank, dims, nullptr);
}
GPUCAST_EXPORT int cudnnGetFilterSizeInBytes(const Tensor* filter, size_t* size_bytes) {
  return cudnnGetTensorSizeInBytes(filter, size_bytes);
}

GPUCAST_EXPORT int cudnnSetTensor(Handle* handle, const Tensor* y, void*, const void*) { return operation(handle, "cudnnSetTensor", y); }
GPUCAST_EXPORT int cudnnScaleTensor(Handle* handle, const Tensor* y, void*, const void*) {
  return operation(handle, "cudnnScaleTensor", y);
}
GPUCAST_EXPORT int cudnnAddTensor(Handle* handle, const void*, const Tensor*, const void*, const void*, const Tensor* c) {
  return operation(handle, "cudnnAddTensor", c);
}
GPUCAST_EXPORT int cudnnTransformTensor(Handle* handle, const void*, const Tensor*, const void*, const void*, const Tensor* y) {
  return operation(handle, "cudnnTransformTensor", y);
}

// ---- Small descriptors ----------------------------------------------------------------------------------------------------------------
#define SETTINGS(Name)                                                                 \
  GPUCAST_EXPORT int cudnnCreate##Name##Descriptor(Settings** s) { return create(s); } \
  GPUCAST_EXPORT int cudnnDestroy##Name##Descriptor(Settings* s) { return destroy(s); }
SETTINGS(Activation)
SETTINGS(Pooling)
SETTINGS(Dropout)
SETTINGS(CTCLoss)
SETTINGS(SpatialTransformer)
SETTINGS(Convolution)
SETTINGS(LRN)
SETTINGS(OpTensor)
SETTINGS(ReduceTensor)
SETTINGS(TensorTransform)
GPUCAST_EXPORT int cudnnSetActivationDescriptor(Settings* settings, int mode) {
  if (!settings) return kBadParamNullPointer;
  settings->mode = mode;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetPooling2dDescriptor(Settings* settings, int mode, int, int window_h, int window_w, int padding_h, int padding_w,
                                               int stride_h, int stride_w) {
  if (!settings) return kBadParamNullPointer;
  settings->mode = mode;
  settings->window = {window_h, window_w};
  settings->padding = {padding_h, padding_w};
  settings->stride = {stride_h, stride_w};
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetPoolingNdDescriptor(Settings* settings, int mode, int, int rank, const int* window, const int* padding,
                                               const int* stride) {
  if (!settings) return kBadParamNullPointer;
  settings->mode = mode;
  settings->window = wide(window, rank);
  settings->padding = wide(padding, rank);
  settings->stride = wide(stride, rank);
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetSpatialTransformerNdDescriptor(Settings* settings) { return settings ? kSuccess : kBadParamNullPointer; }
GPUCAST_EXPORT int cudnnSetLRNDescriptor(Settings* settings) { return settings ? kSuccess : kBadParamNullPointer; }
GPUCAST_EXPORT int cudnnSetOpTensorDescriptor(Settings* settings, int mode) { return cudnnSetActivationDescriptor(settings, mode); }
GPUCAST_EXPORT int cudnnSetReduceTensorDescriptor(Settings* settings, int mode) { return cudnnSetActivationDescriptor(settings, mode); }

// Element-wise operations, pooling, softmax: they differ in the position of the tensor with the shape.
#define FORWARD(Name) \
  GPUCAST_EXPORT int Name(Handle* handle, const void*, const void*, const Tensor* x) { return operation(handle, #Name, x); }
FORWARD(cudnnActivationForward)
FORWARD(cudnnActivationBackward)
FORWARD(cudnnPoolingForward)
FORWARD(cudnnPoolingBackward)
GPUCAST_EXPORT int cudnnSoftmaxForward(Handle* handle, int, int, const void*, const Tensor* x) {
  return operation(handle, "cudnnSoftmaxForward", x);
}
GPUCAST_EXPORT int cudnnSoftmaxBackward(Handle* handle, int, int, const void*, const Tensor* y) {
  return operation(handle, "cudnnSoftmaxBackward", y);
}
GPUCAST_EXPORT int cudnnOpTensor(Handle* handle, const Settings*, const void*, const Tensor* a) {
  return operation(handle, "cudnnOpTensor", a);
}
GPUCAST_EXPORT int cudnnGetReductionIndicesSize(Handle*, const Settings*, const Tensor*, const Tensor*, size_t* size_bytes) {
  return size(size_bytes, 0);
}
GPUCAST_EXPORT int cudnnGetReductionWorkspaceSize(Handle*, const Settings*, const Tensor*, const Tensor*, size_t* size_bytes) {
  return size(size_bytes, 0);
}
GPUCAST_EXPORT int cudnnReduceTensor(Handle* handle, const Settings*, void*, size_t, void*, size_t, const void*, const Tensor* a) {
  return operation(handle, "cudnnReduceTensor", a);
}
#define PLAIN(Name) \
  GPUCAST_EXPORT int Name(Handle* handle) { return operation(handle, #Name); }
PLAIN(cudnnLRNCrossChannelForward)
PLAIN(cudnnLRNCrossChannelBackward)
PLAIN(cudnnSpatialTfGridGeneratorForward)
PLAIN(cudnnSpatialTfGridGeneratorBackward)
PLAIN(cudnnSpatialTfSamplerForward)
PLAIN(cudnnSpatialTfSamplerBackward)

// ---- Dropout --------------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cudnnDropoutGetStatesSize(Handle*, size_t* size_bytes) { return size(size_bytes, dropout_state_bytes()); }
GPUCAST_EXPORT int cudnnDropoutGetReserveSpaceSize(const Tensor* x, size_t* size_bytes) {  // one bit an element
  if (!x) return kBadParamNullPointer;
  return size(size_bytes, (tensor_bytes(*x) / type_bytes(x->type) + 7) / 8);
}
GPUCAST_EXPORT int cudnnSetDropoutDescriptor(Settings* settings, Handle* handle, float dropout, void* states, size_t size_bytes,
                                             unsigned long long seed) {
  if (!settings) return kBadParamNullPointer;
  if (states && size_bytes < dropout_state_bytes()) return kSizeInsufficient;
  settings->dropout = dropout;
  settings->states = states;
  settings->seed = seed;
  return states ? operation(handle, "cudnnSetDropoutDescriptor") : static_cast<int>(kSuccess);  // fills the states
}
GPUCAST_EXPORT int cudnnRestoreDropoutDescriptor(Settings* settings, Handle*, float dropout, void* states, size_t,
                                                 unsigned long long seed) {
  if (!settings) return kBadParamNullPointer;
  settings->dropout = dropout;
  settings->states = states;
  settings->seed = seed;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetDropoutDescriptor(Settings* settings, Handle*, float* dropout, void** states, unsigned long long* seed) {
  if (!settings) return kBadParamNullPointer;
  if (dropout) *dropout = settings->dropout;
  if (states) *states = settings->states;
  if (seed) *seed = settings->seed;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnDropoutForward(Handle* handle, const Settings*, const Tensor* x) {
  return operation(handle, "cudnnDropoutForward", x);
}
GPUCAST_EXPORT int cudnnDropoutBackward(Handle* handle, const Settings*, const Tensor* dy) {
  return operation(handle, "cudnnDropoutBackward", dy);
}

// ---- Batch norm -----------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cudnnDeriveBNTensorDescriptor(Tensor* derived, const Tensor* x, int mode) {
  if (!derived || !x || x->dims.size() < 2) return kBadParamNullPointer;
  std::vector<int64_t> dims = x->dims;
  dims[0] = 1;
  if (mode != 0) std::fill(dims.begin() + 2, dims.end(), 1);  // per channel; mode 0: per activation
  return set(derived, x->type == 1 ? 1 : 0, 0, dims, {});
}
GPUCAST_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(Handle*, int mode, int, const Tensor* x, const Tensor*,
                                                                            const Tensor*, const Tensor*, const Settings*,
                                                                            size_t* size_bytes) {
  if (!x) return kBadParamNullPointer;
  return size(size_bytes, batch_norm_forward_workspace_bytes(batch_norm_problem(mode, *x)));
}
GPUCAST_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(Handle*, int mode, int, const Tensor* x, const Tensor*, const Tensor*,
                                                                     const Tensor*, const Tensor*, const Tensor*, const Settings*,
                                                                     size_t* size_bytes) {
  if (!x) return kBadParamNullPointer;
  return size(size_bytes, batch_norm_backward_workspace_bytes(batch_norm_problem(mode, *x)));
}
GPUCAST_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(Handle*, int mode, int, const Settings*, const Tensor* x,
                                                                        size_t* size_bytes) {
  if (!x) return kBadParamNullPointer;
  return size(size_bytes, batch_norm_reserve_bytes(batch_norm_problem(mode, *x)));
}
#define BATCH_NORM(handle, name, mode, x) \
  if (!(x)) return kBadParamNullPointer;  \
  return operation(handle, name, {{"type", type_name((x)->type)}, {"shape", (x)->dims}, {"strides", (x)->strides}, {"mode", mode}})
GPUCAST_EXPORT int cudnnBatchNormalizationForwardInference(Handle* handle, int mode, const void*, const void*, const Tensor* x) {
  BATCH_NORM(handle, "cudnnBatchNormalizationForwardInference", mode, x);
}
GPUCAST_EXPORT int cudnnBatchNormalizationForwardTraining(Handle* handle, int mode, const void*, const void*, const Tensor* x) {
  BATCH_NORM(handle, "cudnnBatchNormalizationForwardTraining", mode, x);
}
GPUCAST_EXPORT int cudnnBatchNormalizationForwardTrainingEx(Handle* handle, int mode, int, const void*, const void*, const Tensor* x) {
  BATCH_NORM(handle, "cudnnBatchNormalizationForwardTrainingEx", mode, x);
}
GPUCAST_EXPORT int cudnnBatchNormalizationBackward(Handle* handle, int mode, const void*, const void*, const void*, const void*,
                                                   const Tensor* x) {
  BATCH_NORM(handle, "cudnnBatchNormalizationBackward", mode, x);
}
GPUCAST_EXPORT int cudnnBatchNormalizationBackwardEx(Handle* handle, int mode, int, const void*, const void*, const void*, const void*,
                                                     const Tensor* x) {
  BATCH_NORM(handle, "cudnnBatchNormalizationBackwardEx", mode, x);
}

// ---- CTC loss -------------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cudnnSetCTCLossDescriptor(Settings* settings, int) { return settings ? kSuccess : kBadParamNullPointer; }
GPUCAST_EXPORT int cudnnSetCTCLossDescriptorEx(Settings* settings, int, int, int) { return settings ? kSuccess : kBadParamNullPointer; }
GPUCAST_EXPORT int cudnnSetCTCLossDescriptor_v9(Settings* settings, int, int, int, int longest_label) {
  if (!settings) return kBadParamNullPointer;
  settings->longest_label = longest_label;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetCTCLossDescriptor_v8(Settings* settings, int, int, int, int longest_label) {
  return cudnnSetCTCLossDescriptor_v9(settings, 0, 0, 0, longest_label);
}
GPUCAST_EXPORT int cudnnGetCTCLossWorkspaceSize(Handle*, const Tensor* probabilities, const Tensor*, const int*, const int* label_lengths,
                                                const int*, int, Settings*, size_t* size_bytes) {
  if (!probabilities || !label_lengths) return kBadParamNullPointer;
  if (probabilities->dims.size() != 3) return kBadParam;
  const auto& dims = probabilities->dims;  // steps, batch, alphabet
  return size(size_bytes, ctc_loss_workspace_bytes(dims[0], dims[1], dims[2], *std::max_element(label_lengths, label_lengths + dims[1])));
}
GPUCAST_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(Handle*, int, Settings* settings, const Tensor* probabilities, const Tensor*,
                                                   size_t* size_bytes) {
  if (!probabilities || !settings) return kBadParamNullPointer;
  if (probabilities->dims.size() != 3) return kBadParam;
  const auto& dims = probabilities->dims;
  return size(size_bytes, ctc_loss_workspace_bytes(dims[0], dims[1], dims[2], settings->longest_label));
}
GPUCAST_EXPORT int cudnnCTCLoss(Handle* handle, const Tensor* probabilities, const void*, const int*, const int*, const int*, void*,
                                const Tensor*, void*, int, Settings*, void* workspace, size_t workspace_bytes) {
  if (workspace_bytes) gpucast::vgpu::log_workspace("cudnn", number(workspace), workspace_bytes);
  return operation(handle, "cudnnCTCLoss", probabilities);
}
GPUCAST_EXPORT int cudnnCTCLoss_v8(Handle* handle, int, Settings*, const Tensor* probabilities, const void*, const int*, const int*,
                                   const int*, void*, const Tensor*, void*, size_t workspace_bytes, void* workspace) {
  if (workspace_bytes) gpucast::vgpu::log_workspace("cudnn", number(workspace), workspace_bytes);
  return operation(handle, "cudnnCTCLoss_v8", probabilities);
}

// ---- Convolutions by algorithm ----------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cudnnSetConvolution2dDescriptor(Settings* settings, int padding_h, int padding_w, int stride_h, int stride_w,
                                                   int dilation_h, int dilation_w, int mode, int) {
  if (!settings) return kBadParamNullPointer;
  settings->padding = {padding_h, padding_w};
  settings->stride = {stride_h, stride_w};
  settings->dilation = {dilation_h, dilation_w};
  settings->mode = mode;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetConvolutionNdDescriptor(Settings* settings, int rank, const int* padding, const int* stride, const int* dilation,
                                                   int mode, int) {
  if (!settings) return kBadParamNullPointer;
  settings->padding = wide(padding, rank);
  settings->stride = wide(stride, rank);
  settings->dilation = wide(dilation, rank);
  settings->mode = mode;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetConvolutionGroupCount(Settings* settings, int groups) {
  if (!settings) return kBadParamNullPointer;
  settings->groups = groups;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetConvolutionGroupCount(Settings* settings, int* groups) {
  if (!settings || !groups) return kBadParamNullPointer;
  *groups = settings->groups;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnSetConvolutionMathType(Settings* settings, int math_type) {
  if (!settings) return kBadParamNullPointer;
  settings->math_type = math_type;
  return kSuccess;
}
GPUCAST_EXPORT int cudnnGetConvolutionMathType(Settings* settings, int* math_type) {
  if (!settings || !math_type) return kBadParamNullPointer;
  *math_type = settings->math_type;
  return kSuccess;
}
SUCCEEDS(cudnnSetConvolutionReorderType)

namespace {

ConvolutionProblem convolution_problem(ConvolutionKind kind, const Tensor& x, const Tensor& w, const Tensor& y, const Settings& convolution,
                                       int algorithm) {
  return {kind, x.type, x.dims, w.dims, y.dims, x.strides, convolution.padding, convolution.stride, convolution.dilation, algorithm};
}

// The three result structures have the same fields.
struct AlgorithmPerformance {
  int algorithm, status;
  float time_ms;
  size_t memory_bytes;
  int determinism, math_type;
  int reserved[3];
};

// Offers one algorithm, number 1 of each direction (deterministic, implicit products).
int found_algorithm(ConvolutionKind kind, const Tensor* x, const Tensor* w, const Tensor* y, const Settings* convolution, int requested,
                    int* returned, AlgorithmPerformance* results) {
  if (!x || !w || !y || !convolution || !returned || !results) return kBadParamNullPointer;
  if (requested < 1) return kBadParam;
  results[0] = {
      1, kSuccess, 0.1f, convolution_workspace_bytes(convolution_problem(kind, *x, *w, *y, *convolution, 1)), 1, convolution->math_type,
      {}};
  *returned = 1;
  return kSuccess;
}

int convolve(Handle* handle, const char* name, ConvolutionKind kind, const Tensor* x, const Tensor* w, const Tensor* y,
             const Settings* convolution, void* workspace, size_t workspace_bytes) {
  if (!x || !w || !y || !convolution) return kBadParamNullPointer;
  if (workspace_bytes < convolution_workspace_bytes(convolution_problem(kind, *x, *w, *y, *convolution, 1))) return kSizeInsufficient;
  if (workspace_bytes) gpucast::vgpu::log_workspace("cudnn", number(workspace), workspace_bytes);
  return operation(handle, name,
                   {{"type", type_name(x->type)},
                    {"x", x->dims},
                    {"w", w->dims},
                    {"y", y->dims},
                    {"x_strides", x->strides},
                    {"padding", convolution->padding},
                    {"stride", convolution->stride},
                    {"dilation", convolution->dilation},
                    {"groups", convolution->groups},
                    {"workspace_bytes", workspace_bytes}});
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are parameter names.
#define CONVOLUTION_QUERIES(Direction, kind, A, B, C, x, w, y)                                                                             \
  GPUCAST_EXPORT int cudnnGetConvolution##Direction##AlgorithmMaxCount(Handle*, int* count) {                                              \
    if (!count) return kBadParamNullPointer;                                                                                               \
    *count = 1;                                                                                                                            \
    return kSuccess;                                                                                                                       \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cudnnGetConvolution##Direction##Algorithm_v7(Handle*, const Tensor* A, const Tensor* B, const Settings* convolution,  \
                                                                  const Tensor* C, int requested, int* returned,                           \
                                                                  AlgorithmPerformance* results) {                                         \
    return found_algorithm(kind, x, w, y, convolution, requested, returned, results);                                                      \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cudnnFindConvolution##Direction##Algorithm(Handle*, const Tensor* A, const Tensor* B, const Settings* convolution,    \
                                                                const Tensor* C, int requested, int* returned,                             \
                                                                AlgorithmPerformance* results) {                                           \
    return found_algorithm(kind, x, w, y, convolution, requested, returned, results);                                                      \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cudnnFindConvolution##Direction##AlgorithmEx(Handle*, const Tensor* A, const void*, const Tensor* B, const void*,     \
                                                                  const Settings* convolution, const Tensor* C, void*, int requested,      \
                                                                  int* returned, AlgorithmPerformance* results, void*, size_t) {           \
    return found_algorithm(kind, x, w, y, convolution, requested, returned, results);                                                      \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cudnnGetConvolution##Direction##WorkspaceSize(Handle*, const Tensor* A, const Tensor* B, const Settings* convolution, \
                                                                   const Tensor* C, int algorithm, size_t* size_bytes) {                   \
    if (!A || !B || !C || !convolution) return kBadParamNullPointer;                                                                       \
    return size(size_bytes, convolution_workspace_bytes(convolution_problem(kind, *x, *w, *y, *convolution, algorithm)));                  \
  }
CONVOLUTION_QUERIES(Forward, ConvolutionKind::forward, x, w, y, x, w, y)
CONVOLUTION_QUERIES(BackwardData, ConvolutionKind::backward_data, w, dy, dx, dx, w, dy)
CONVOLUTION_QUERIES(BackwardFilter, ConvolutionKind::backward_filter, x, dy, dw, x, dw, dy)
// NOLINTEND(bugprone-macro-parentheses)

GPUCAST_EXPORT int cudnnConvolutionForward(Handle* handle, const void*, const Tensor* x, const void*, const Tensor* w, const void*,
                                           const Settings* convolution, int, void* workspace, size_t workspace_bytes, const void*,
                                           const Tensor* y, void*) {
  return convolve(handle, "cudnnConvolutionForward", ConvolutionKind::forward, x, w, y, convolution, workspace, workspace_bytes);
}
GPUCAST_EXPORT int cudnnConvolutionBackwardData(Handle* handle, const void*, const Tensor* w, const void*, const Tensor* dy, const void*,
                                                const Settings* convolution, int, void* workspace, size_t workspace_bytes, const void*,
                                                const Tensor* dx, void*) {
  return convolve(handle, "cudnnConvolutionBackwardData", ConvolutionKind::backward_data, dx, w, dy, convolution, workspace,
                  workspace_bytes);
}
GPUCAST_EXPORT int cudnnConvolutionBackwardFilter(Handle* handle, const void*, const Tensor* x, const void*, const Tensor* dy, const void*,
                                                  const Settings* convolution, int, void* workspace, size_t workspace_bytes, const void*,
                                                  const Tensor* dw, void*) {
  return convolve(handle, "cudnnConvolutionBackwardFilter", ConvolutionKind::backward_filter, x, dw, dy, convolution, workspace,
                  workspace_bytes);
}
GPUCAST_EXPORT int cudnnConvolutionBackwardBias(Handle* handle, const void*, const Tensor* dy) {
  return operation(handle, "cudnnConvolutionBackwardBias", dy);
}
GPUCAST_EXPORT int cudnnConvolutionBiasActivationForward(Handle* handle, const void*, const Tensor* x, const void*, const Tensor* w,
                                                         const void*, const Settings* convolution, int, void* workspace,
                                                         size_t workspace_bytes, const void*, const Tensor*, const void*, const Tensor*,
                                                         const void*, const Settings*, const Tensor* y, void*) {
  return convolve(handle, "cudnnConvolutionBiasActivationForward", ConvolutionKind::forward, x, w, y, convolution, workspace,
                  workspace_bytes);
}
