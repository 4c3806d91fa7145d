// Virtual cuBLAS: handles keep their settings, every operation succeeds and is logged with its shapes, nothing is computed.
//
// A handle of the real library also allocates a few MiB on the device. The ledger has a measured value for them, so nothing is allocated
// here. PyTorch provides its own workspace (cublasSetWorkspace).
#include "src/vgpu/libs/call.h"
#include "src/vgpu/libs/cublas_status.h"

namespace {

using gpucast::vgpu::data_type_name;
using gpucast::vgpu::Field;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

enum Status : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 7 };

struct Handle {
  void* stream = nullptr;
  int pointer_mode = 0;  // 0: scalars and results on the host, 1: on the device
  int math_mode = 0;
  int atomics_mode = 0;
  int sm_count_target = 0;
};

const char* transpose_name(int op) { return op == 0 ? "n" : op == 1 ? "t" : "c"; }

// The batched factorizations report each matrix's status on the host if the caller wants it: all succeed.
Status operation(Handle* handle, const char* name, std::initializer_list<Field> fields = {}) {
  if (!handle) return kNotInitialized;
  launched("cublas", name, number(handle->stream), fields);
  return kSuccess;
}

Status gemm(Handle* handle, const char* name, const char* type, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k,
            int64_t batch) {
  return operation(handle, name,
                   {{"type", type},
                    {"ta", transpose_name(transpose_a)},
                    {"tb", transpose_name(transpose_b)},
                    {"m", m},
                    {"n", n},
                    {"k", k},
                    {"batch", batch}});
}

Status gemm_ex(Handle* handle, const char* name, int type_a, int type_b, int type_c, int transpose_a, int transpose_b, int64_t m, int64_t n,
               int64_t k, int64_t batch, int compute_type) {
  return operation(handle, name,
                   {{"type", data_type_name(type_a)},
                    {"type_b", data_type_name(type_b)},
                    {"type_c", data_type_name(type_c)},
                    {"compute_type", compute_type},
                    {"ta", transpose_name(transpose_a)},
                    {"tb", transpose_name(transpose_b)},
                    {"m", m},
                    {"n", n},
                    {"k", k},
                    {"batch", batch}});
}

// A result that the handle's settings send to the host. Everything computed here is zero.
template <typename Result>
Status reduction(Handle* handle, const char* name, int64_t n, void* result, Result value) {
  if (!handle) return kNotInitialized;
  if (handle->pointer_mode == 0 && result) std::memcpy(result, &value, sizeof(Result));
  return operation(handle, name, {{"n", n}});
}

struct Complex32 {
  float re, im;
};
struct Complex64 {
  double re, im;
};

}  // namespace

// ---- Handle ------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cublasCreate_v2(Handle** handle) {
  if (!handle) return kInvalidValue;
  *handle = new Handle;
  return kSuccess;
}
GPUCAST_EXPORT int cublasDestroy_v2(Handle* handle) {
  if (!handle) return kNotInitialized;
  delete handle;
  return kSuccess;
}
GPUCAST_EXPORT int cublasGetVersion_v2(Handle*, int* version) {
  if (!version) return kInvalidValue;
  *version = gpucast::vgpu::profile().cublas_version;
  return kSuccess;
}
GPUCAST_EXPORT int cublasGetProperty(int part, int* value) {
  if (!value) return kInvalidValue;
  *value = gpucast::vgpu::version_part(gpucast::vgpu::profile().cublas_version, part);
  return kSuccess;
}
GPUCAST_EXPORT size_t cublasGetCudartVersion() { return static_cast<size_t>(gpucast::vgpu::profile().runtime_version); }

// NOLINTBEGIN(bugprone-macro-parentheses): the macros below have types as arguments.
#define SETTING(Name, Type, member)                            \
  GPUCAST_EXPORT int cublasSet##Name(Handle* h, Type value) {  \
    if (!h) return kNotInitialized;                            \
    h->member = value;                                         \
    return kSuccess;                                           \
  }                                                            \
  GPUCAST_EXPORT int cublasGet##Name(Handle* h, Type* value) { \
    if (!h) return kNotInitialized;                            \
    if (!value) return kInvalidValue;                          \
    *value = h->member;                                        \
    return kSuccess;                                           \
  }
SETTING(Stream_v2, void*, stream)
SETTING(PointerMode_v2, int, pointer_mode)
SETTING(MathMode, int, math_mode)
SETTING(AtomicsMode, int, atomics_mode)
SETTING(SmCountTarget, int, sm_count_target)

GPUCAST_EXPORT int cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t size_bytes) {
  if (!handle) return kNotInitialized;
  gpucast::vgpu::log_workspace("cublas", number(workspace), size_bytes);
  return kSuccess;
}
GPUCAST_EXPORT int cublasLoggerConfigure(int, int, int, const char*) { return kSuccess; }
GPUCAST_EXPORT int cublasSetLoggerCallback(void*) { return kSuccess; }
GPUCAST_EXPORT const char* cublasGetStatusName(int status) { return gpucast::vgpu::cublas_status_name(status); }
GPUCAST_EXPORT const char* cublasGetStatusString(int status) { return cublasGetStatusName(status); }

// ---- Copies between host and device: contents go through the core as any copy does ----------------------------------------
namespace {

int copy_columns(int64_t rows, int64_t columns, int64_t element_bytes, const void* from, int64_t from_stride, void* to, int64_t to_stride,
                 int kind, void* stream) {
  if (rows < 0 || columns < 0 || element_bytes <= 0 || from_stride < rows || to_stride < rows) return kInvalidValue;
  if (from_stride == rows && to_stride == rows) {  // one contiguous piece
    rows *= columns;
    columns = rows > 0 ? 1 : 0;
  }
  for (int64_t column = 0; column < columns; ++column) {
    gpucast::vgpu::copy(static_cast<char*>(to) + column * to_stride * element_bytes,
                        static_cast<const char*>(from) + column * from_stride * element_bytes, static_cast<size_t>(rows * element_bytes),
                        kind, number(stream));
  }
  return kSuccess;
}

}  // namespace

#define COPIES(Suffix, Int)                                                                                                             \
  GPUCAST_EXPORT int cublasSetVectorAsync##Suffix(Int n, Int element_bytes, const void* x, Int incx, void* y, Int incy, void* stream) { \
    return copy_columns(1, n, element_bytes, x, incx, y, incy, 1, stream);                                                              \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cublasGetVectorAsync##Suffix(Int n, Int element_bytes, const void* x, Int incx, void* y, Int incy, void* stream) { \
    return copy_columns(1, n, element_bytes, x, incx, y, incy, 2, stream);                                                              \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cublasSetVector##Suffix(Int n, Int element_bytes, const void* x, Int incx, void* y, Int incy) {                    \
    return copy_columns(1, n, element_bytes, x, incx, y, incy, 1, nullptr);                                                             \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cublasGetVector##Suffix(Int n, Int element_bytes, const void* x, Int incx, void* y, Int incy) {                    \
    return copy_columns(1, n, element_bytes, x, incx, y, incy, 2, nullptr);                                                             \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cublasSetMatrixAsync##Suffix(Int rows, Int columns, Int element_bytes, const void* a, Int lda, void* b, Int ldb,   \
                                                  void* stream) {                                                                       \
    return copy_columns(rows, columns, element_bytes, a, lda, b, ldb, 1, stream);                                                       \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cublasGetMatrixAsync##Suffix(Int rows, Int columns, Int element_bytes, const void* a, Int lda, void* b, Int ldb,   \
                                                  void* stream) {                                                                       \
    return copy_columns(rows, columns, element_bytes, a, lda, b, ldb, 2, stream);                                                       \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cublasSetMatrix##Suffix(Int rows, Int columns, Int element_bytes, const void* a, Int lda, void* b, Int ldb) {      \
    return copy_columns(rows, columns, element_bytes, a, lda, b, ldb, 1, nullptr);                                                      \
  }                                                                                                                                     \
  GPUCAST_EXPORT int cublasGetMatrix##Suffix(Int rows, Int columns, Int element_bytes, const void* a, Int lda, void* b, Int ldb) {      \
    return copy_columns(rows, columns, element_bytes, a, lda, b, ldb, 2, nullptr);                                                      \
  }
COPIES(, int)
COPIES(_64, int64_t)

// ---- Matrix products: plain, batched, strided; each with 32 and 64 bit sizes -------------------------------------------------
#define GEMM(Name, Int, type)                                                       \
  GPUCAST_EXPORT int cublas##Name(Handle* h, int ta, int tb, Int m, Int n, Int k) { \
    return gemm(h, "cublas" #Name, type, ta, tb, m, n, k, 1);                       \
  }
#define GEMM_BATCHED(Name, Int, type)                                                                                              \
  GPUCAST_EXPORT int cublas##Name(Handle* h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, const void*, Int, \
                                  const void*, void*, Int, Int batch) {                                                            \
    return gemm(h, "cublas" #Name, type, ta, tb, m, n, k, batch);                                                                  \
  }
#define GEMM_STRIDED(Name, Int, type)                                                                                                    \
  GPUCAST_EXPORT int cublas##Name(Handle* h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, long long, const void*, \
                                  Int, long long, const void*, void*, Int, long long, Int batch) {                                       \
    return gemm(h, "cublas" #Name, type, ta, tb, m, n, k, batch);                                                                        \
  }
#define GEMM_EX(Name, Int)                                                                                                                \
  GPUCAST_EXPORT int cublas##Name(Handle* h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int type_a, Int, const void*, \
                                  int type_b, Int, const void*, void*, int type_c) {                                                      \
    return gemm_ex(h, "cublas" #Name, type_a, type_b, type_c, ta, tb, m, n, k, 1, 0);                                                     \
  }
#define GEMM_FAMILY(L, type)                     \
  GEMM_BATCHED(L##gemmBatched, int, type)        \
  GEMM_BATCHED(L##gemmBatched_64, int64_t, type) \
  GEMM_STRIDED(L##gemmStridedBatched, int, type) \
  GEMM_STRIDED(L##gemmStridedBatched_64, int64_t, type)
GEMM(Sgemm_v2, int, "float32")
GEMM(Sgemm_v2_64, int64_t, "float32")
GEMM(Dgemm_v2, int, "float64")
GEMM(Dgemm_v2_64, int64_t, "float64")
GEMM(Cgemm_v2, int, "complex64")
GEMM(Cgemm_v2_64, int64_t, "complex64")
GEMM(Zgemm_v2, int, "complex128")
GEMM(Zgemm_v2_64, int64_t, "complex128")
GEMM(Hgemm, int, "float16")
GEMM(Hgemm_64, int64_t, "float16")
GEMM(Cgemm3m, int, "complex64")
GEMM(Cgemm3m_64, int64_t, "complex64")
GEMM(Zgemm3m, int, "complex128")
GEMM(Zgemm3m_64, int64_t, "complex128")
GEMM_FAMILY(S, "float32")
GEMM_FAMILY(D, "float64")
GEMM_FAMILY(C, "complex64")
GEMM_FAMILY(Z, "complex128")
GEMM_FAMILY(H, "float16")
GEMM_EX(SgemmEx, int)
GEMM_EX(SgemmEx_64, int64_t)
GEMM_EX(CgemmEx, int)
GEMM_EX(CgemmEx_64, int64_t)

#define GEMM_EX_FAMILY(Suffix, Int)                                                                                                       \
  GPUCAST_EXPORT int cublasGemmEx##Suffix(Handle* h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int type_a, Int,      \
                                          const void*, int type_b, Int, const void*, void*, int type_c, Int, int compute_type, int) {     \
    return gemm_ex(h, "cublasGemmEx" #Suffix, type_a, type_b, type_c, ta, tb, m, n, k, 1, compute_type);                                  \
  }                                                                                                                                       \
  GPUCAST_EXPORT int cublasGemmBatchedEx##Suffix(Handle* h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int type_a,    \
                                                 Int, const void*, int type_b, Int, const void*, void*, int type_c, Int, Int batch,       \
                                                 int compute_type, int) {                                                                 \
    return gemm_ex(h, "cublasGemmBatchedEx" #Suffix, type_a, type_b, type_c, ta, tb, m, n, k, batch, compute_type);                       \
  }                                                                                                                                       \
  GPUCAST_EXPORT int cublasGemmStridedBatchedEx##Suffix(Handle* h, int ta, int tb, Int m, Int n, Int k, const void*, const void*,         \
                                                        int type_a, Int, long long, const void*, int type_b, Int, long long, const void*, \
                                                        void*, int type_c, Int, long long, Int batch, int compute_type, int) {            \
    return gemm_ex(h, "cublasGemmStridedBatchedEx" #Suffix, type_a, type_b, type_c, ta, tb, m, n, k, batch, compute_type);                \
  }
GEMM_EX_FAMILY(, int)
GEMM_EX_FAMILY(_64, int64_t)

// ---- Results that may go to the host -------------------------------------------------------------------------------------------
#define DOT(Name, Int, Result)                                                                          \
  GPUCAST_EXPORT int cublas##Name(Handle* h, Int n, const void*, Int, const void*, Int, void* result) { \
    return reduction(h, "cublas" #Name, n, result, Result{});                                           \
  }
#define NORM(Name, Int, Result)                                                       \
  GPUCAST_EXPORT int cublas##Name(Handle* h, Int n, const void*, Int, void* result) { \
    return reduction(h, "cublas" #Name, n, result, Result{});                         \
  }
#define BOTH(Kind, Name, Result) Kind(Name, int, Result) Kind(Name##_64, int64_t, Result)
BOTH(DOT, Sdot_v2, float)
BOTH(DOT, Ddot_v2, double)
BOTH(DOT, Cdotu_v2, Complex32)
BOTH(DOT, Cdotc_v2, Complex32)
BOTH(DOT, Zdotu_v2, Complex64)
BOTH(DOT, Zdotc_v2, Complex64)
BOTH(NORM, Snrm2_v2, float)
BOTH(NORM, Dnrm2_v2, double)
BOTH(NORM, Scnrm2_v2, float)
BOTH(NORM, Dznrm2_v2, double)
BOTH(NORM, Sasum_v2, float)
BOTH(NORM, Dasum_v2, double)
BOTH(NORM, Scasum_v2, float)
BOTH(NORM, Dzasum_v2, double)
// The index of the largest or smallest element is an int or an int64_t, and counts from 1.
#define ARGUMENT_OF(Name, Int)                                                        \
  GPUCAST_EXPORT int cublas##Name(Handle* h, Int n, const void*, Int, void* result) { \
    return reduction(h, "cublas" #Name, n, result, n > 0 ? Int{1} : Int{0});          \
  }
#define ARGUMENT_OF_TYPES(L)      \
  ARGUMENT_OF(I##L##amax_v2, int) \
  ARGUMENT_OF(I##L##amax_v2_64, int64_t) ARGUMENT_OF(I##L##amin_v2, int) ARGUMENT_OF(I##L##amin_v2_64, int64_t)
ARGUMENT_OF_TYPES(s)
ARGUMENT_OF_TYPES(d)
ARGUMENT_OF_TYPES(c)
ARGUMENT_OF_TYPES(z)
#define DOT_EX(Name, Int)                                                                                                               \
  GPUCAST_EXPORT int cublas##Name(Handle* h, Int n, const void*, int, Int, const void*, int, Int, void* result, int result_type, int) { \
    if (!h) return kNotInitialized;                                                                                                     \
    if (h->pointer_mode == 0 && result) std::memset(result, 0, gpucast::vgpu::data_type_bytes(result_type));                            \
    return operation(h, "cublas" #Name, {{"type", data_type_name(result_type)}, {"n", n}});                                             \
  }
DOT_EX(DotEx, int)
DOT_EX(DotEx_64, int64_t)
DOT_EX(DotcEx, int)
DOT_EX(DotcEx_64, int64_t)
#define NORM_EX(Name, Int)                                                                                       \
  GPUCAST_EXPORT int cublas##Name(Handle* h, Int n, const void*, int, Int, void* result, int result_type, int) { \
    if (!h) return kNotInitialized;                                                                              \
    if (h->pointer_mode == 0 && result) std::memset(result, 0, gpucast::vgpu::data_type_bytes(result_type));     \
    return operation(h, "cublas" #Name, {{"type", data_type_name(result_type)}, {"n", n}});                      \
  }
NORM_EX(Nrm2Ex, int)
NORM_EX(Nrm2Ex_64, int64_t)
NORM_EX(AsumEx, int)
NORM_EX(AsumEx_64, int64_t)

// ---- Vectors, and matrices by vectors: sizes come first ----------------------------------------------------------------------
#define VECTOR(Name, Int) \
  GPUCAST_EXPORT int cublas##Name(Handle* h, Int n) { return operation(h, "cublas" #Name, {{"n", n}}); }
#define VECTOR2(Name) VECTOR(Name, int) VECTOR(Name##_64, int64_t)
#define VECTOR_TYPES(op) VECTOR2(S##op##_v2) VECTOR2(D##op##_v2) VECTOR2(C##op##_v2) VECTOR2(Z##op##_v2)
VECTOR_TYPES(axpy)
VECTOR_TYPES(scal)
VECTOR_TYPES(copy)
VECTOR_TYPES(swap)
VECTOR_TYPES(rot)
VECTOR2(Csrot_v2)
VECTOR2(Zdrot_v2)
VECTOR2(Srotm_v2)
VECTOR2(Drotm_v2)
VECTOR2(Csscal_v2)
VECTOR2(Zdscal_v2)
VECTOR2(AxpyEx)
VECTOR2(ScalEx)
VECTOR2(CopyEx)
VECTOR2(SwapEx)
VECTOR2(RotEx)

#define GEMV(Name, Int, type)                                                                              \
  GPUCAST_EXPORT int cublas##Name(Handle* h, int ta, Int m, Int n) {                                       \
    return operation(h, "cublas" #Name, {{"type", type}, {"ta", transpose_name(ta)}, {"m", m}, {"n", n}}); \
  }
#define GEMV2(L, type) GEMV(L##gemv_v2, int, type) GEMV(L##gemv_v2_64, int64_t, type)
GEMV2(S, "float32")
GEMV2(D, "float64")
GEMV2(C, "complex64")
GEMV2(Z, "complex128")
#define GEMV_BATCHED(L, type)     \
  GEMV(L##gemvBatched, int, type) \
  GEMV(L##gemvBatched_64, int64_t, type) GEMV(L##gemvStridedBatched, int, type) GEMV(L##gemvStridedBatched_64, int64_t, type)
GEMV_BATCHED(S, "float32")
GEMV_BATCHED(D, "float64")
GEMV_BATCHED(C, "complex64")
GEMV_BATCHED(Z, "complex128")
GEMV_BATCHED(HSH, "float16")
GEMV_BATCHED(HSS, "float16")
GEMV_BATCHED(TST, "bfloat16")
GEMV_BATCHED(TSS, "bfloat16")

// ---- Triangular solves and products, symmetric updates ----------------------------------------------------------------------------
#define TRIANGULAR(Name, Int, type)                                                                                                    \
  GPUCAST_EXPORT int cublas##Name(Handle* h, int side, int, int transpose, int, Int m, Int n) {                                        \
    return operation(h, "cublas" #Name,                                                                                                \
                     {{"type", type}, {"side", side == 0 ? "left" : "right"}, {"ta", transpose_name(transpose)}, {"m", m}, {"n", n}}); \
  }
#define TRIANGULAR_TYPE(L, type)           \
  TRIANGULAR(L##trsm_v2, int, type)        \
  TRIANGULAR(L##trsm_v2_64, int64_t, type) \
  TRIANGULAR(L##trmm_v2, int, type)        \
  TRIANGULAR(L##trmm_v2_64, int64_t, type) TRIANGULAR(L##trsmBatched, int, type) TRIANGULAR(L##trsmBatched_64, int64_t, type)
TRIANGULAR_TYPE(S, "float32")
TRIANGULAR_TYPE(D, "float64")
TRIANGULAR_TYPE(C, "complex64")
TRIANGULAR_TYPE(Z, "complex128")

// Rarer operations: logged by name alone.
#define PLAIN(Name) \
  GPUCAST_EXPORT int cublas##Name(Handle* h) { return operation(h, "cublas" #Name); }
#define PLAIN2(Name) PLAIN(Name) PLAIN(Name##_64)
#define PLAIN_REAL(op) PLAIN2(S##op##_v2) PLAIN2(D##op##_v2)
#define PLAIN_COMPLEX(op) PLAIN2(C##op##_v2) PLAIN2(Z##op##_v2)
#define PLAIN_TYPES(op) PLAIN_REAL(op) PLAIN_COMPLEX(op)
PLAIN_REAL(ger)
PLAIN_COMPLEX(gerc)
PLAIN_COMPLEX(geru)
PLAIN_COMPLEX(hemm)
PLAIN_COMPLEX(hemv)
PLAIN_COMPLEX(her)
PLAIN_COMPLEX(her2)
PLAIN_COMPLEX(her2k)
PLAIN_COMPLEX(herk)
PLAIN_TYPES(gbmv)
PLAIN_TYPES(symm)
PLAIN_TYPES(symv)
PLAIN_TYPES(syr)
PLAIN_TYPES(syr2)
PLAIN_TYPES(syr2k)
PLAIN_TYPES(syrk)
PLAIN_TYPES(trmv)
PLAIN_TYPES(trsv)
PLAIN2(Sgeam)
PLAIN2(Dgeam)
PLAIN2(Cgeam)
PLAIN2(Zgeam)
PLAIN2(Sdgmm)
PLAIN2(Ddgmm)
PLAIN2(Cdgmm)
PLAIN2(Zdgmm)
PLAIN2(GemmGroupedBatchedEx)
PLAIN2(SgemmGroupedBatched)
PLAIN2(DgemmGroupedBatched)

// Rotations give host scalars in host mode: c = 1, s = 0 is the rotation of a zero vector.
#define ROTG(Name, Real, Scalar)                                                   \
  GPUCAST_EXPORT int cublas##Name(Handle* h, void* a, void* b, void* c, void* s) { \
    if (!h) return kNotInitialized;                                                \
    if (h->pointer_mode == 0 && a && b && c && s) {                                \
      const Real one = 1;                                                          \
      std::memset(a, 0, sizeof(Scalar));                                           \
      std::memset(b, 0, sizeof(Scalar));                                           \
      std::memcpy(c, &one, sizeof(Real));                                          \
      std::memset(s, 0, sizeof(Scalar));                                           \
    }                                                                              \
    return operation(h, "cublas" #Name);                                           \
  }
ROTG(Srotg_v2, float, float)
ROTG(Drotg_v2, double, double)
ROTG(Crotg_v2, float, Complex32)
ROTG(Zrotg_v2, double, Complex64)
PLAIN(Srotmg_v2)
PLAIN(Drotmg_v2)

// ---- Batched factorizations: `info` on the host (getrs, geqrf, gels) says that all is well ------------------------------------------
#define FACTOR_TYPE(L, type)                                                                                                             \
  GPUCAST_EXPORT int cublas##L##getrfBatched(Handle* h, int n, const void*, int, void*, void*, int batch) {                              \
    return operation(h, "cublas" #L "getrfBatched", {{"type", type}, {"n", n}, {"batch", batch}});                                       \
  }                                                                                                                                      \
  GPUCAST_EXPORT int cublas##L##getriBatched(Handle* h, int n, const void*, int, const void*, const void*, int, void*, int batch) {      \
    return operation(h, "cublas" #L "getriBatched", {{"type", type}, {"n", n}, {"batch", batch}});                                       \
  }                                                                                                                                      \
  GPUCAST_EXPORT int cublas##L##matinvBatched(Handle* h, int n, const void*, int, const void*, int, void*, int batch) {                  \
    return operation(h, "cublas" #L "matinvBatched", {{"type", type}, {"n", n}, {"batch", batch}});                                      \
  }                                                                                                                                      \
  GPUCAST_EXPORT int cublas##L##getrsBatched(Handle* h, int ta, int n, int columns, const void*, int, const void*, const void*, int,     \
                                             int* info, int batch) {                                                                     \
    if (info) *info = 0;                                                                                                                 \
    return operation(h, "cublas" #L "getrsBatched",                                                                                      \
                     {{"type", type}, {"ta", transpose_name(ta)}, {"n", n}, {"columns", columns}, {"batch", batch}});                    \
  }                                                                                                                                      \
  GPUCAST_EXPORT int cublas##L##geqrfBatched(Handle* h, int m, int n, const void*, int, const void*, int* info, int batch) {             \
    if (info) *info = 0;                                                                                                                 \
    return operation(h, "cublas" #L "geqrfBatched", {{"type", type}, {"m", m}, {"n", n}, {"batch", batch}});                             \
  }                                                                                                                                      \
  GPUCAST_EXPORT int cublas##L##gelsBatched(Handle* h, int ta, int m, int n, int columns, const void*, int, const void*, int, int* info, \
                                            void*, int batch) {                                                                          \
    if (info) *info = 0;                                                                                                                 \
    return operation(h, "cublas" #L "gelsBatched",                                                                                       \
                     {{"type", type}, {"ta", transpose_name(ta)}, {"m", m}, {"n", n}, {"columns", columns}, {"batch", batch}});          \
  }
FACTOR_TYPE(S, "float32")
FACTOR_TYPE(D, "float64")
FACTOR_TYPE(C, "complex64")
FACTOR_TYPE(Z, "complex128")
// NOLINTEND(bugprone-macro-parentheses)
