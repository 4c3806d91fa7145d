// Virtual cuSPARSELt (2:4 structured sparsity). The caller's structures, at least 512 bytes each, hold our own.
#include "src/vgpu/libs/call.h"

namespace {

using gpucast::vgpu::data_type_bytes;
using gpucast::vgpu::data_type_name;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

enum Status : int { kSuccess = 0, kInvalidValue = 3 };

struct Matrix {
  int64_t rows, columns, leading_dimension;
  int type, order, batch;
};
struct Matmul {
  Matrix a, b, d;
  int transpose_a, transpose_b;
};
static_assert(sizeof(Matmul) <= 512);

int init(Matrix* matrix, int64_t rows, int64_t columns, int64_t leading_dimension, int type, int order) {
  if (!matrix) return kInvalidValue;
  *matrix = {rows, columns, leading_dimension, type, order, 1};
  return kSuccess;
}

// Half of the values, and 2 bits for each kept 16 bit value (what PyTorch allocates too: 9/16, and 10/16 for 8 bits).
size_t compressed_bytes(const Matrix& matrix) {
  const size_t element_bytes = data_type_bytes(matrix.type);
  return static_cast<size_t>(matrix.rows * matrix.columns * matrix.batch) * element_bytes * (element_bytes == 1 ? 10 : 9) / 16;
}

}  // namespace

GPUCAST_EXPORT int cusparseLtInit(void* handle) { return handle ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusparseLtDestroy(void*) { return kSuccess; }
GPUCAST_EXPORT int cusparseLtGetVersion(void*, int* version) {
  if (!version) return kInvalidValue;
  *version = gpucast::vgpu::profile().cusparselt_version;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtGetProperty(int part, int* value) {
  if (!value) return kInvalidValue;
  *value = gpucast::vgpu::version_part(gpucast::vgpu::profile().cusparselt_version, part, 1000, 100);
  return kSuccess;
}
GPUCAST_EXPORT const char* cusparseLtGetErrorName(int status) {
  return status == 0    ? "CUSPARSE_STATUS_SUCCESS"
         : status == 3  ? "CUSPARSE_STATUS_INVALID_VALUE"
         : status == 10 ? "CUSPARSE_STATUS_NOT_SUPPORTED"
                        : "CUSPARSE_STATUS_UNKNOWN";
}
GPUCAST_EXPORT const char* cusparseLtGetErrorString(int status) { return cusparseLtGetErrorName(status); }

GPUCAST_EXPORT int cusparseLtDenseDescriptorInit(void*, Matrix* matrix, int64_t rows, int64_t columns, int64_t leading_dimension, uint32_t,
                                                 int type, int order) {
  return init(matrix, rows, columns, leading_dimension, type, order);
}
GPUCAST_EXPORT int cusparseLtStructuredDescriptorInit(void*, Matrix* matrix, int64_t rows, int64_t columns, int64_t leading_dimension,
                                                      uint32_t, int type, int order, int) {
  return init(matrix, rows, columns, leading_dimension, type, order);
}
GPUCAST_EXPORT int cusparseLtMatDescriptorDestroy(void*) { return kSuccess; }
GPUCAST_EXPORT int cusparseLtMatDescSetAttribute(void*, Matrix* matrix, int attribute, const void* value, size_t size_bytes) {
  if (!matrix || !value) return kInvalidValue;
  if (attribute == 0 && size_bytes == 4) std::memcpy(&matrix->batch, value, 4);
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtMatmulDescriptorInit(void*, Matmul* matmul, int transpose_a, int transpose_b, const Matrix* a, const Matrix* b,
                                                  const Matrix*, const Matrix* d) {
  if (!matmul || !a || !b || !d) return kInvalidValue;
  *matmul = {*a, *b, *d, transpose_a, transpose_b};
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtMatmulDescSetAttribute(void*, Matmul* matmul) { return matmul ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusparseLtMatmulAlgSelectionInit(void*, int* selection, const Matmul*, int) {
  if (!selection) return kInvalidValue;
  *selection = 0;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtMatmulAlgSelectionDestroy(void*) { return kSuccess; }
GPUCAST_EXPORT int cusparseLtMatmulAlgSetAttribute(void*, int* selection) { return selection ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusparseLtMatmulAlgGetAttribute(void*, const int*, int attribute, void* value, size_t size_bytes) {
  if (!value || size_bytes < 4) return kInvalidValue;
  // One algorithm, one split: attribute 1 is the number of algorithms, 2 the iterations of a search, 3 the splits.
  const int answer = attribute == 1 || attribute == 2 || attribute == 3 ? 1 : 0;
  std::memset(value, 0, size_bytes);
  std::memcpy(value, &answer, 4);
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtMatmulPlanInit(void*, Matmul* plan, const Matmul* matmul, const void*) {
  if (!plan || !matmul) return kInvalidValue;
  *plan = *matmul;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtMatmulPlanDestroy(void*) { return kSuccess; }
GPUCAST_EXPORT int cusparseLtMatmulGetWorkspace(void*, const void*, size_t* size_bytes) {
  if (!size_bytes) return kInvalidValue;
  *size_bytes = 0;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtMatmul(void*, const Matmul* plan, const void*, const void*, const void*, const void*, const void*, void*,
                                    void*, void* const* streams, int32_t stream_count) {
  if (!plan) return kInvalidValue;
  launched("cusparseLt", "cusparseLtMatmul", streams && stream_count > 0 ? number(streams[0]) : 0,
           {{"type", data_type_name(plan->a.type)},
            {"m", plan->d.rows},
            {"n", plan->d.columns},
            {"k", plan->transpose_a == 0 ? plan->a.columns : plan->a.rows}});
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtMatmulSearch(void*, Matmul* plan) { return plan ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusparseLtSpMMACompressedSize2(void*, const Matrix* matrix, size_t* bytes, size_t* buffer_bytes) {
  if (!matrix || !bytes) return kInvalidValue;
  *bytes = compressed_bytes(*matrix);
  if (buffer_bytes) *buffer_bytes = 0;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtSpMMACompressedSize(void*, const Matmul* plan, size_t* bytes, size_t* buffer_bytes) {
  return plan ? cusparseLtSpMMACompressedSize2(nullptr, &plan->a, bytes, buffer_bytes) : static_cast<int>(kInvalidValue);
}
GPUCAST_EXPORT int cusparseLtSpMMACompress2(void*, const Matrix* matrix, int, int, const void*, void*, void*, void* stream) {
  if (!matrix) return kInvalidValue;
  launched("cusparseLt", "cusparseLtSpMMACompress2", number(stream), {{"rows", matrix->rows}, {"columns", matrix->columns}});
  return kSuccess;
}
GPUCAST_EXPORT int cusparseLtSpMMACompress(void*, const Matmul* plan, const void*, void*, void*, void* stream) {
  return plan ? cusparseLtSpMMACompress2(nullptr, &plan->a, 0, 0, nullptr, nullptr, nullptr, stream) : static_cast<int>(kInvalidValue);
}
