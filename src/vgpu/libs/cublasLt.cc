// Virtual cuBLASLt: descriptors that remember what the log needs, a heuristic with one algorithm, matrix products that
// are logged and compute nothing. The caller's structures (cublasLtMatrixLayoutOpaque_t and others) hold our own.
#include "src/vgpu/libs/call.h"
#include "src/vgpu/libs/cublas_status.h"

namespace {

using gpucast::vgpu::data_type_name;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

enum Status : int { kSuccess = 0, kInvalidValue = 7, kNotSupported = 15 };

struct Layout {
  int32_t type, order, batch, batch_mode;
  uint64_t rows, columns;
  int64_t leading_dimension, batch_stride, plane_offset;
};
static_assert(sizeof(Layout) <= 64);

// Attributes have at most 8 bytes; 0 is the right default for all of them here.
constexpr size_t kMatmulAttributes = 28;
struct MatmulDesc {
  uint64_t value[kMatmulAttributes];
};
static_assert(sizeof(MatmulDesc) <= 256);

struct Preference {
  uint64_t max_workspace_bytes;
  uint64_t other[7];
};
static_assert(sizeof(Preference) == 64);

struct Algorithm {
  uint64_t data[8];  // [0]: its id, [1 + attribute / 2]: settings, 32 bits each
};

struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

int get_bytes(const void* from, size_t have, void* to, size_t size_bytes, size_t* written) {
  if (size_bytes == 0) {
    if (!written) return kInvalidValue;
    *written = have;
    return kSuccess;
  }
  if (!to || size_bytes < have) return kInvalidValue;
  std::memcpy(to, from, have);
  if (written) *written = have;
  return kSuccess;
}

// The place and size of a layout's attribute.
struct AttributePlace {
  void* at;
  size_t size_bytes;
};
AttributePlace layout_attribute(Layout* layout, int attribute) {
  switch (attribute) {
    case 0:
      return {&layout->type, 4};
    case 1:
      return {&layout->order, 4};
    case 2:
      return {&layout->rows, 8};
    case 3:
      return {&layout->columns, 8};
    case 4:
      return {&layout->leading_dimension, 8};
    case 5:
      return {&layout->batch, 4};
    case 6:
      return {&layout->batch_stride, 8};
    case 7:
      return {&layout->plane_offset, 8};
    case 8:
      return {&layout->batch_mode, 4};
    default:
      return {nullptr, 0};
  }
}

const char* transpose_name(uint64_t op) { return op == 0 ? "n" : op == 1 ? "t" : "c"; }

template <typename T>
int destroy(T* object) {
  delete object;
  return kSuccess;
}

}  // namespace

// ---- Library ---------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cublasLtCreate(void** handle) {
  if (!handle) return kInvalidValue;
  *handle = new int(0);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtDestroy(int* handle) { return destroy(handle); }
GPUCAST_EXPORT size_t cublasLtGetVersion() { return static_cast<size_t>(gpucast::vgpu::profile().cublas_version); }
GPUCAST_EXPORT size_t cublasLtGetCudartVersion() { return static_cast<size_t>(gpucast::vgpu::profile().runtime_version); }
GPUCAST_EXPORT int cublasLtGetProperty(int part, int* value) {
  if (!value) return kInvalidValue;
  *value = gpucast::vgpu::version_part(gpucast::vgpu::profile().cublas_version, part);
  return kSuccess;
}
GPUCAST_EXPORT const char* cublasLtGetStatusName(int status) { return gpucast::vgpu::cublas_status_name(status); }
GPUCAST_EXPORT const char* cublasLtGetStatusString(int status) { return cublasLtGetStatusName(status); }
GPUCAST_EXPORT int cublasLtLoggerSetCallback(void*) { return kSuccess; }
GPUCAST_EXPORT int cublasLtLoggerSetFile(void*) { return kSuccess; }
GPUCAST_EXPORT int cublasLtLoggerOpenFile(const char*) { return kSuccess; }
GPUCAST_EXPORT int cublasLtLoggerSetLevel(int) { return kSuccess; }
GPUCAST_EXPORT int cublasLtLoggerSetMask(int) { return kSuccess; }
GPUCAST_EXPORT int cublasLtLoggerForceDisable() { return kSuccess; }
GPUCAST_EXPORT int cublasLtHeuristicsCacheGetCapacity(size_t* capacity) {
  if (!capacity) return kInvalidValue;
  *capacity = 0;
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtHeuristicsCacheSetCapacity(size_t) { return kSuccess; }

// ---- Matrix layouts --------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cublasLtMatrixLayoutInit_internal(Layout* layout, size_t, int type, uint64_t rows, uint64_t columns,
                                                     int64_t leading_dimension) {
  if (!layout) return kInvalidValue;
  *layout = Layout{type, 0, 1, 0, rows, columns, leading_dimension, 0, 0};
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t leading_dimension) {
  if (!layout) return kInvalidValue;
  *layout = new Layout;
  return cublasLtMatrixLayoutInit_internal(*layout, sizeof(Layout), type, rows, columns, leading_dimension);
}
GPUCAST_EXPORT int cublasLtMatrixLayoutDestroy(Layout* layout) { return destroy(layout); }
GPUCAST_EXPORT int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value, size_t size_bytes) {
  if (!layout || !value) return kInvalidValue;
  const AttributePlace place = layout_attribute(layout, attribute);
  if (!place.at || size_bytes != place.size_bytes) return kInvalidValue;
  std::memcpy(place.at, value, size_bytes);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatrixLayoutGetAttribute(Layout* layout, int attribute, void* value, size_t size_bytes, size_t* written) {
  if (!layout) return kInvalidValue;
  const AttributePlace place = layout_attribute(layout, attribute);
  return place.at ? get_bytes(place.at, place.size_bytes, value, size_bytes, written) : static_cast<int>(kInvalidValue);
}

// ---- Operation, preference ----------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cublasLtMatmulDescInit_internal(MatmulDesc* desc, size_t, int compute_type, int scale_type) {
  if (!desc) return kInvalidValue;
  *desc = MatmulDesc{};
  desc->value[0] = static_cast<uint64_t>(compute_type);
  desc->value[1] = static_cast<uint64_t>(scale_type);
  desc->value[7] = 1;  // epilogue: none
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulDescCreate(MatmulDesc** desc, int compute_type, int scale_type) {
  if (!desc) return kInvalidValue;
  *desc = new MatmulDesc;
  return cublasLtMatmulDescInit_internal(*desc, sizeof(MatmulDesc), compute_type, scale_type);
}
GPUCAST_EXPORT int cublasLtMatmulDescDestroy(MatmulDesc* desc) { return destroy(desc); }
GPUCAST_EXPORT int cublasLtMatmulDescSetAttribute(MatmulDesc* desc, unsigned attribute, const void* value, size_t size_bytes) {
  if (!desc || !value || size_bytes > 8) return kInvalidValue;
  if (attribute >= kMatmulAttributes) return kSuccess;  // scaling modes and similar attributes; none of our answers depends on them
  desc->value[attribute] = 0;
  std::memcpy(&desc->value[attribute], value, size_bytes);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulDescGetAttribute(MatmulDesc* desc, unsigned attribute, void* value, size_t size_bytes, size_t* written) {
  if (!desc || attribute >= kMatmulAttributes) return kInvalidValue;
  return get_bytes(&desc->value[attribute], size_bytes && size_bytes < 8 ? size_bytes : 8, value, size_bytes, written);
}
GPUCAST_EXPORT int cublasLtMatmulPreferenceInit_internal(Preference* preference, size_t) {
  if (!preference) return kInvalidValue;
  *preference = Preference{};
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulPreferenceCreate(Preference** preference) {
  if (!preference) return kInvalidValue;
  *preference = new Preference{};
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulPreferenceDestroy(Preference* preference) { return destroy(preference); }
GPUCAST_EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, size_t size_bytes) {
  if (!preference || !value) return kInvalidValue;
  if (attribute == 1 && size_bytes == 8) std::memcpy(&preference->max_workspace_bytes, value, 8);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulPreferenceGetAttribute(Preference* preference, int attribute, void* value, size_t size_bytes,
                                                        size_t* written) {
  if (!preference || attribute != 1) return kInvalidValue;
  return get_bytes(&preference->max_workspace_bytes, 8, value, size_bytes, written);
}

// ---- Algorithms: one, that needs no workspace and so fits every preference ------------------------------------------------------
GPUCAST_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, MatmulDesc* desc, Layout* a, Layout* b, Layout* c, Layout* d, Preference*,
                                                  int requested, HeuristicResult* results, int* returned) {
  if (!desc || !a || !b || !c || !d || !results || !returned || requested < 1) return kInvalidValue;
  results[0] = HeuristicResult{};
  results[0].waves = 1.0f;
  *returned = 1;
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulAlgoCheck(void*, MatmulDesc* desc, Layout*, Layout*, Layout*, Layout*, const Algorithm* algorithm,
                                           HeuristicResult* result) {
  if (!desc || !algorithm || !result) return kInvalidValue;
  const Algorithm kept = *algorithm;  // it may lie inside *result
  *result = HeuristicResult{};
  result->algorithm = kept;
  result->waves = 1.0f;
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int requested, int* ids, int* returned) {
  if (!ids || !returned || requested < 1) return kInvalidValue;
  ids[0] = 0;
  *returned = 1;
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int id, Algorithm* algorithm) {
  if (!algorithm) return kInvalidValue;
  *algorithm = Algorithm{};
  algorithm->data[0] = static_cast<uint64_t>(id);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(Algorithm* algorithm, unsigned attribute, const void* value, size_t size_bytes) {
  if (!algorithm || !value || attribute == 0 || attribute > 12 || size_bytes > 4) return kInvalidValue;
  std::memcpy(reinterpret_cast<uint32_t*>(&algorithm->data[1]) + attribute, value, size_bytes);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, unsigned attribute, void* value, size_t size_bytes,
                                                        size_t* written) {
  if (!algorithm || attribute > 12) return kInvalidValue;
  const void* from =
      attribute == 0 ? static_cast<const void*>(&algorithm->data[0]) : reinterpret_cast<const uint32_t*>(&algorithm->data[1]) + attribute;
  return get_bytes(from, size_bytes && size_bytes < 4 ? size_bytes : 4, value, size_bytes, written);
}
GPUCAST_EXPORT int cublasLtMatmulAlgoCapGetAttribute(const Algorithm* algorithm, int, void* value, size_t size_bytes, size_t* written) {
  if (!algorithm) return kInvalidValue;
  if (value) std::memset(value, 0, size_bytes);
  if (written) *written = size_bytes;
  return kSuccess;
}

// ---- Operations ------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cublasLtMatmul(void*, MatmulDesc* desc, const void*, const void*, Layout* a, const void*, Layout* b, const void*,
                                  const void*, Layout* c, void*, Layout* d, const Algorithm*, void* workspace, size_t workspace_bytes,
                                  void* stream) {
  if (!desc || !a || !b || !c || !d) return kInvalidValue;
  const uint64_t transpose_a = desc->value[3];
  if (workspace_bytes) gpucast::vgpu::log_workspace("cublasLt", number(workspace), workspace_bytes);
  launched("cublasLt", "cublasLtMatmul", number(stream),
           {{"type", data_type_name(a->type)},
            {"type_b", data_type_name(b->type)},
            {"type_c", data_type_name(d->type)},
            {"compute_type", static_cast<int64_t>(desc->value[0])},
            {"ta", transpose_name(transpose_a)},
            {"tb", transpose_name(desc->value[4])},
            {"m", d->rows},
            {"n", d->columns},
            {"k", transpose_a == 0 ? a->columns : a->rows},
            {"batch", int64_t{d->batch}},
            {"epilogue", static_cast<int64_t>(desc->value[7])},
            {"workspace_bytes", workspace_bytes}});
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatrixTransform(void*, void* desc, const void*, const void*, Layout* a, const void*, const void*, Layout*, void*,
                                           Layout* c, void* stream) {
  if (!desc || !c) return kInvalidValue;
  launched(
      "cublasLt", "cublasLtMatrixTransform", number(stream),
      {{"type", data_type_name(a ? a->type : c->type)}, {"type_c", data_type_name(c->type)}, {"rows", c->rows}, {"columns", c->columns}});
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatrixTransformDescInit_internal(uint64_t* desc, size_t size_bytes) {
  if (!desc || size_bytes < 64) return kInvalidValue;
  std::memset(desc, 0, 64);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatrixTransformDescCreate(uint64_t** desc) {
  if (!desc) return kInvalidValue;
  *desc = new uint64_t[8]{};
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatrixTransformDescDestroy(uint64_t* desc) {
  delete[] desc;
  return kSuccess;
}
GPUCAST_EXPORT int cublasLtMatrixTransformDescSetAttribute(uint64_t* desc) { return desc ? kSuccess : kInvalidValue; }
