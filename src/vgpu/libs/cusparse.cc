// Virtual cuSPARSE: descriptors keep shapes, and operations are logged. Results are zeros, so sparse results are empty.
//
// Buffers have 0 bytes, which every caller must accept. The real sizes depend on the contents of the matrix and are not published.
#include "src/vgpu/libs/call.h"

namespace {

using gpucast::vgpu::data_type_name;
using gpucast::vgpu::Field;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

enum Status : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 3 };

struct Handle {
  void* stream = nullptr;
  int pointer_mode = 0;
};

// A sparse or dense matrix, or a vector (one column).
struct Matrix {
  int64_t rows = 0, columns = 0, nonzeros = 0, leading_dimension = 0;
  int type = 0;
  int batch = 1;
  int64_t batch_stride = 0;
  int order = 0;
  void* values = nullptr;
};

struct LegacyDescriptor {
  int type = 0, fill_mode = 0, diagonal = 0, index_base = 0;
};

int create(Matrix** matrix, Matrix value) {
  if (!matrix) return kInvalidValue;
  *matrix = new Matrix(value);
  return kSuccess;
}
template <typename T>
int destroy(T* object) {
  delete object;
  return kSuccess;
}
int no_buffer(size_t* size_bytes) {
  if (!size_bytes) return kInvalidValue;
  *size_bytes = 0;
  return kSuccess;
}
int operation(Handle* handle, const char* name, std::initializer_list<Field> fields = {}) {
  if (!handle) return kNotInitialized;
  launched("cusparse", name, number(handle->stream), fields);
  return kSuccess;
}

}  // namespace

// ---- Handle ---------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cusparseCreate(Handle** handle) {
  if (!handle) return kInvalidValue;
  *handle = new Handle;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseDestroy(Handle* handle) { return destroy(handle); }
GPUCAST_EXPORT int cusparseGetVersion(Handle*, int* version) {
  if (!version) return kInvalidValue;
  *version = gpucast::vgpu::profile().cusparse_version;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseGetProperty(int part, int* value) {
  if (!value) return kInvalidValue;
  *value = gpucast::vgpu::version_part(gpucast::vgpu::profile().cusparse_version, part, 1000, 100);
  return kSuccess;
}
GPUCAST_EXPORT int cusparseSetStream(Handle* handle, void* stream) {
  if (!handle) return kNotInitialized;
  handle->stream = stream;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseGetStream(Handle* handle, void** stream) {
  if (!handle || !stream) return kInvalidValue;
  *stream = handle->stream;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseSetPointerMode(Handle* handle, int mode) {
  if (!handle) return kNotInitialized;
  handle->pointer_mode = mode;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseGetPointerMode(Handle* handle, int* mode) {
  if (!handle || !mode) return kInvalidValue;
  *mode = handle->pointer_mode;
  return kSuccess;
}
GPUCAST_EXPORT const char* cusparseGetErrorName(int status) {
  static const char* const names[] = {
      "CUSPARSE_STATUS_SUCCESS",          "CUSPARSE_STATUS_NOT_INITIALIZED", "CUSPARSE_STATUS_ALLOC_FAILED",
      "CUSPARSE_STATUS_INVALID_VALUE",    "CUSPARSE_STATUS_ARCH_MISMATCH",   "CUSPARSE_STATUS_MAPPING_ERROR",
      "CUSPARSE_STATUS_EXECUTION_FAILED", "CUSPARSE_STATUS_INTERNAL_ERROR",  "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
      "CUSPARSE_STATUS_ZERO_PIVOT",       "CUSPARSE_STATUS_NOT_SUPPORTED",   "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"};
  return status >= 0 && status < 12 ? names[status] : "CUSPARSE_STATUS_UNKNOWN";
}
GPUCAST_EXPORT const char* cusparseGetErrorString(int status) { return cusparseGetErrorName(status); }

// ---- Descriptors ------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cusparseCreateMatDescr(LegacyDescriptor** descriptor) {
  if (!descriptor) return kInvalidValue;
  *descriptor = new LegacyDescriptor;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseDestroyMatDescr(LegacyDescriptor* descriptor) { return destroy(descriptor); }
#define LEGACY_SETTING(Name, member)                                                 \
  GPUCAST_EXPORT int cusparseSetMat##Name(LegacyDescriptor* descriptor, int value) { \
    if (!descriptor) return kInvalidValue;                                           \
    descriptor->member = value;                                                      \
    return kSuccess;                                                                 \
  }                                                                                  \
  GPUCAST_EXPORT int cusparseGetMat##Name(const LegacyDescriptor* descriptor) { return descriptor ? descriptor->member : 0; }
LEGACY_SETTING(Type, type)
LEGACY_SETTING(FillMode, fill_mode)
LEGACY_SETTING(DiagType, diagonal)
LEGACY_SETTING(IndexBase, index_base)

#define CREATE_COMPRESSED(Name)                                                                                                        \
  GPUCAST_EXPORT int Name(Matrix** matrix, int64_t rows, int64_t columns, int64_t nonzeros, void*, void*, void* values, int, int, int, \
                          int type) {                                                                                                  \
    return create(matrix, {.rows = rows, .columns = columns, .nonzeros = nonzeros, .type = type, .values = values});                   \
  }
CREATE_COMPRESSED(cusparseCreateCsr)
CREATE_COMPRESSED(cusparseCreateConstCsr)
CREATE_COMPRESSED(cusparseCreateCsc)
CREATE_COMPRESSED(cusparseCreateConstCsc)
#define CREATE_COO(Name)                                                                                                          \
  GPUCAST_EXPORT int Name(Matrix** matrix, int64_t rows, int64_t columns, int64_t nonzeros, void*, void*, void* values, int, int, \
                          int type) {                                                                                             \
    return create(matrix, {.rows = rows, .columns = columns, .nonzeros = nonzeros, .type = type, .values = values});              \
  }
CREATE_COO(cusparseCreateCoo)
CREATE_COO(cusparseCreateConstCoo)
GPUCAST_EXPORT int cusparseCreateBsr(Matrix** matrix, int64_t rows, int64_t columns, int64_t nonzeros, int64_t block_rows,
                                     int64_t block_columns, void*, void*, void* values, int, int, int, int type, int order) {
  return create(matrix, {.rows = rows * block_rows,
                         .columns = columns * block_columns,
                         .nonzeros = nonzeros * block_rows * block_columns,
                         .type = type,
                         .order = order,
                         .values = values});
}
#define CREATE_DENSE(Name)                                                                                                                \
  GPUCAST_EXPORT int Name(Matrix** matrix, int64_t rows, int64_t columns, int64_t leading_dimension, void* values, int type, int order) { \
    return create(                                                                                                                        \
        matrix,                                                                                                                           \
        {.rows = rows, .columns = columns, .leading_dimension = leading_dimension, .type = type, .order = order, .values = values});      \
  }
CREATE_DENSE(cusparseCreateDnMat)
CREATE_DENSE(cusparseCreateConstDnMat)
#define CREATE_VECTOR(Name)                                                              \
  GPUCAST_EXPORT int Name(Matrix** matrix, int64_t size, void* values, int type) {       \
    return create(matrix, {.rows = size, .columns = 1, .type = type, .values = values}); \
  }
CREATE_VECTOR(cusparseCreateDnVec)
CREATE_VECTOR(cusparseCreateConstDnVec)
GPUCAST_EXPORT int cusparseDestroySpMat(Matrix* matrix) { return destroy(matrix); }
GPUCAST_EXPORT int cusparseDestroyDnMat(Matrix* matrix) { return destroy(matrix); }
GPUCAST_EXPORT int cusparseDestroyDnVec(Matrix* matrix) { return destroy(matrix); }
GPUCAST_EXPORT int cusparseSpMatGetSize(Matrix* matrix, int64_t* rows, int64_t* columns, int64_t* nonzeros) {
  if (!matrix || !rows || !columns || !nonzeros) return kInvalidValue;
  *rows = matrix->rows;
  *columns = matrix->columns;
  *nonzeros = matrix->nonzeros;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseSpMatSetAttribute(Matrix* matrix) { return matrix ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusparseSpMatGetValues(Matrix* matrix, void** values) {
  if (!matrix || !values) return kInvalidValue;
  *values = matrix->values;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseSpMatSetValues(Matrix* matrix, void* values) {
  if (!matrix) return kInvalidValue;
  matrix->values = values;
  return kSuccess;
}
GPUCAST_EXPORT int cusparseCsrSetPointers(Matrix* matrix, void*, void*, void* values) { return cusparseSpMatSetValues(matrix, values); }
GPUCAST_EXPORT int cusparseCooSetPointers(Matrix* matrix, void*, void*, void* values) { return cusparseSpMatSetValues(matrix, values); }
#define SET_BATCH(Name)                                                \
  GPUCAST_EXPORT int Name(Matrix* matrix, int batch, int64_t stride) { \
    if (!matrix || batch < 1) return kInvalidValue;                    \
    matrix->batch = batch;                                             \
    matrix->batch_stride = stride;                                     \
    return kSuccess;                                                   \
  }
SET_BATCH(cusparseCsrSetStridedBatch)
SET_BATCH(cusparseCooSetStridedBatch)
SET_BATCH(cusparseDnMatSetStridedBatch)
#define OPAQUE(Name)                                         \
  GPUCAST_EXPORT int cusparse##Name##_createDescr(int** d) { \
    if (!d) return kInvalidValue;                            \
    *d = new int(0);                                         \
    return kSuccess;                                         \
  }                                                          \
  GPUCAST_EXPORT int cusparse##Name##_destroyDescr(int* d) { return destroy(d); }
OPAQUE(SpGEMM)
OPAQUE(SpSM)
OPAQUE(SpSV)
#define OPAQUE_INFO(Name)                               \
  GPUCAST_EXPORT int cusparseCreate##Name(int** info) { \
    if (!info) return kInvalidValue;                    \
    *info = new int(0);                                 \
    return kSuccess;                                    \
  }                                                     \
  GPUCAST_EXPORT int cusparseDestroy##Name(int* info) { return destroy(info); }
OPAQUE_INFO(Bsrsm2Info)
OPAQUE_INFO(Bsrsv2Info)

// ---- Products ---------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cusparseSpMM_bufferSize(Handle*, int, int, const void*, Matrix*, Matrix*, const void*, Matrix*, int, int,
                                           size_t* size_bytes) {
  return no_buffer(size_bytes);
}
GPUCAST_EXPORT int cusparseSpMM_preprocess(Handle* handle) { return handle ? kSuccess : kNotInitialized; }
GPUCAST_EXPORT int cusparseSpMM(Handle* handle, int, int, const void*, Matrix* a, Matrix* b, const void*, Matrix* c) {
  if (!a || !b || !c) return kInvalidValue;
  return operation(handle, "cusparseSpMM",
                   {{"type", data_type_name(a->type)},
                    {"rows", a->rows},
                    {"columns", a->columns},
                    {"nonzeros", a->nonzeros},
                    {"n", c->columns},
                    {"batch", c->batch}});
}
GPUCAST_EXPORT int cusparseSpMV_bufferSize(Handle*, int, const void*, Matrix*, Matrix*, const void*, Matrix*, int, int,
                                           size_t* size_bytes) {
  return no_buffer(size_bytes);
}
GPUCAST_EXPORT int cusparseSpMV_preprocess(Handle* handle) { return handle ? kSuccess : kNotInitialized; }
GPUCAST_EXPORT int cusparseSpMV(Handle* handle, int, const void*, Matrix* a) {
  if (!a) return kInvalidValue;
  return operation(handle, "cusparseSpMV",
                   {{"type", data_type_name(a->type)}, {"rows", a->rows}, {"columns", a->columns}, {"nonzeros", a->nonzeros}});
}
GPUCAST_EXPORT int cusparseSDDMM_bufferSize(Handle*, int, int, const void*, Matrix*, Matrix*, const void*, Matrix*, int, int,
                                            size_t* size_bytes) {
  return no_buffer(size_bytes);
}
GPUCAST_EXPORT int cusparseSDDMM_preprocess(Handle* handle) { return handle ? kSuccess : kNotInitialized; }
GPUCAST_EXPORT int cusparseSDDMM(Handle* handle, int, int, const void*, Matrix* a, Matrix* b, const void*, Matrix* c) {
  if (!a || !b || !c) return kInvalidValue;
  return operation(
      handle, "cusparseSDDMM",
      {{"type", data_type_name(a->type)}, {"rows", c->rows}, {"columns", c->columns}, {"nonzeros", c->nonzeros}, {"k", a->columns}});
}
GPUCAST_EXPORT int cusparseSpGEMM_workEstimation(Handle*, int, int, const void*, Matrix*, Matrix*, const void*, Matrix*, int, int, void*,
                                                 size_t* size_bytes, void*) {
  return no_buffer(size_bytes);
}
GPUCAST_EXPORT int cusparseSpGEMM_compute(Handle* handle, int, int, const void*, Matrix* a, Matrix* b, const void*, Matrix* c, int, int,
                                          void*, size_t* size_bytes, void*) {
  if (!a || !b || !c) return kInvalidValue;
  c->nonzeros = 0;  // the product's number of nonzeros depends on the contents
  if (const int status = no_buffer(size_bytes)) return status;
  return operation(handle, "cusparseSpGEMM_compute",
                   {{"type", data_type_name(a->type)},
                    {"m", a->rows},
                    {"k", a->columns},
                    {"n", b->columns},
                    {"nonzeros_a", a->nonzeros},
                    {"nonzeros_b", b->nonzeros}});
}
GPUCAST_EXPORT int cusparseSpGEMM_copy(Handle* handle) { return operation(handle, "cusparseSpGEMM_copy"); }

// ---- Triangular solves ----------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cusparseSpSV_bufferSize(Handle*, int, const void*, Matrix*, Matrix*, Matrix*, int, int, void*, size_t* size_bytes) {
  return no_buffer(size_bytes);
}
GPUCAST_EXPORT int cusparseSpSM_bufferSize(Handle*, int, int, const void*, Matrix*, Matrix*, Matrix*, int, int, void*, size_t* size_bytes) {
  return no_buffer(size_bytes);
}
#define PLAIN(Name) \
  GPUCAST_EXPORT int cusparse##Name(Handle* handle) { return operation(handle, "cusparse" #Name); }
PLAIN(SpSV_analysis)
PLAIN(SpSV_solve)
PLAIN(SpSM_analysis)
PLAIN(SpSM_solve)

// ---- The older interface -----------------------------------------------------------------------------------------------------------
#define LEGACY_TYPE(L)                                                                                                                  \
  PLAIN(L##bsrmm)                                                                                                                       \
  PLAIN(L##bsrmv)                                                                                                                       \
  PLAIN(L##bsrsm2_analysis)                                                                                                             \
  PLAIN(L##bsrsm2_solve)                                                                                                                \
  PLAIN(L##bsrsv2_analysis)                                                                                                             \
  PLAIN(L##bsrsv2_solve)                                                                                                                \
  PLAIN(L##csrgeam2)                                                                                                                    \
  GPUCAST_EXPORT int cusparse##L##bsrsm2_bufferSize(Handle*, int, int, int, int, int, int, void*, void*, const void*, const void*, int, \
                                                    void*, int* size_bytes) {                                                           \
    if (!size_bytes) return kInvalidValue;                                                                                              \
    *size_bytes = 0;                                                                                                                    \
    return kSuccess;                                                                                                                    \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cusparse##L##bsrsv2_bufferSize(Handle*, int, int, int, int, void*, void*, const void*, const void*, int, void*,    \
                                                    int* size_bytes) {                                                                  \
    if (!size_bytes) return kInvalidValue;                                                                                              \
    *size_bytes = 0;                                                                                                                    \
    return kSuccess;                                                                                                                    \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cusparse##L##csrgeam2_bufferSizeExt(Handle*, int, int, const void*, void*, int, const void*, const void*,          \
                                                         const void*, const void*, void*, int, const void*, const void*, const void*,   \
                                                         void*, const void*, const void*, const void*, size_t* size_bytes) {            \
    return no_buffer(size_bytes);                                                                                                       \
  }
LEGACY_TYPE(S)
LEGACY_TYPE(D)
LEGACY_TYPE(C)
LEGACY_TYPE(Z)
// No pivot is zero: the answer is "none found", position -1.
#define ZERO_PIVOT(Name)                                          \
  GPUCAST_EXPORT int Name(Handle* handle, void*, int* position) { \
    if (!handle || !position) return kInvalidValue;               \
    if (handle->pointer_mode == 0) *position = -1;                \
    return kSuccess;                                              \
  }
ZERO_PIVOT(cusparseXbsrsm2_zeroPivot)
ZERO_PIVOT(cusparseXbsrsv2_zeroPivot)
GPUCAST_EXPORT int cusparseXcsrgeam2Nnz(Handle* handle, int, int, void*, int nonzeros_a, const void*, const void*, void*, int nonzeros_b,
                                        const void*, const void*, void*, void*, int* nonzeros, void*) {
  if (!handle || !nonzeros) return kInvalidValue;
  if (handle->pointer_mode == 0)
    *nonzeros = nonzeros_a > nonzeros_b ? nonzeros_a : nonzeros_b;  // the sum has at least the nonzeros of the larger one
  return operation(handle, "cusparseXcsrgeam2Nnz");
}
PLAIN(Xcoo2csr)
PLAIN(Xcsr2coo)
PLAIN(CreateIdentityPermutation)
PLAIN(XcoosortByRow)
PLAIN(XcoosortByColumn)
PLAIN(Xcsrsort)
GPUCAST_EXPORT int cusparseXcoosort_bufferSizeExt(Handle*, int, int, int, const void*, const void*, size_t* size_bytes) {
  return no_buffer(size_bytes);
}
GPUCAST_EXPORT int cusparseXcsrsort_bufferSizeExt(Handle*, int, int, int, const void*, const void*, size_t* size_bytes) {
  return no_buffer(size_bytes);
}
