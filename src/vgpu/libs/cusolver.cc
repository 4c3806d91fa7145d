// Virtual cuSOLVER (dense): every factorization "succeeds" and computes nothing. Its status on the device is the zero that is already
// there.
//
// Work spaces (a model; the real sizes are not published): the size that LAPACK needs for the same routine with blocks of 32 columns. They
// are temporary, and small compared with the matrices except in eigenvalue and singular value problems.
#include <algorithm>

#include "src/vgpu/libs/call.h"

namespace {

using gpucast::vgpu::data_type_bytes;
using gpucast::vgpu::data_type_name;
using gpucast::vgpu::Field;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

enum Status : int { kSuccess = 0, kNotInitialized = 1, kInvalidValue = 3 };
constexpr int64_t kBlock = 32;

struct Handle {
  void* stream = nullptr;
};

int operation(Handle* handle, const char* name, std::initializer_list<Field> fields) {
  if (!handle) return kNotInitialized;
  launched("cusolver", name, number(handle->stream), fields);
  return kSuccess;
}

int elements(int* out, int64_t count) {
  if (!out) return kInvalidValue;
  *out = static_cast<int>(std::min<int64_t>(std::max<int64_t>(count, 1), INT32_MAX));
  return kSuccess;
}
int bytes(size_t* device, size_t* host, int64_t count, int type) {
  if (!device || !host) return kInvalidValue;
  *device = static_cast<size_t>(std::max<int64_t>(count, 1)) * data_type_bytes(type);
  *host = 0;
  return kSuccess;
}

int64_t factor_elements(int64_t m, int64_t n) { return kBlock * std::max(m, n); }
int64_t eigen_elements(int64_t n) { return 1 + 6 * n + 2 * n * n; }
int64_t svd_elements(int64_t m, int64_t n) { return std::min(m, n) * std::min(m, n) + kBlock * (m + n); }
int64_t jacobi_svd_elements(int64_t m, int64_t n) { return m * n + std::min(m, n) * std::min(m, n); }

int create(int** object) {
  if (!object) return kInvalidValue;
  *object = new int(0);
  return kSuccess;
}
int destroy(int* object) {
  delete object;
  return kSuccess;
}

}  // namespace

GPUCAST_EXPORT int cusolverDnCreate(Handle** handle) {
  if (!handle) return kInvalidValue;
  *handle = new Handle;
  return kSuccess;
}
GPUCAST_EXPORT int cusolverDnDestroy(Handle* handle) {
  delete handle;
  return kSuccess;
}
GPUCAST_EXPORT int cusolverDnSetStream(Handle* handle, void* stream) {
  if (!handle) return kNotInitialized;
  handle->stream = stream;
  return kSuccess;
}
GPUCAST_EXPORT int cusolverDnGetStream(Handle* handle, void** stream) {
  if (!handle || !stream) return kInvalidValue;
  *stream = handle->stream;
  return kSuccess;
}
GPUCAST_EXPORT int cusolverGetVersion(int* version) {
  if (!version) return kInvalidValue;
  *version = gpucast::vgpu::profile().cusolver_version;
  return kSuccess;
}
GPUCAST_EXPORT int cusolverGetProperty(int part, int* value) {
  if (!value) return kInvalidValue;
  *value = gpucast::vgpu::version_part(gpucast::vgpu::profile().cusolver_version, part, 1000, 100);
  return kSuccess;
}
GPUCAST_EXPORT int cusolverDnSetDeterministicMode(Handle* handle, int) { return handle ? kSuccess : kNotInitialized; }
GPUCAST_EXPORT int cusolverDnCreateParams(int** params) { return create(params); }
GPUCAST_EXPORT int cusolverDnDestroyParams(int* params) { return destroy(params); }
GPUCAST_EXPORT int cusolverDnCreateSyevjInfo(int** info) { return create(info); }
GPUCAST_EXPORT int cusolverDnDestroySyevjInfo(int* info) { return destroy(info); }
GPUCAST_EXPORT int cusolverDnCreateGesvdjInfo(int** info) { return create(info); }
GPUCAST_EXPORT int cusolverDnDestroyGesvdjInfo(int* info) { return destroy(info); }
GPUCAST_EXPORT int cusolverDnXsyevjSetTolerance(int* info) { return info ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusolverDnXsyevjSetMaxSweeps(int* info) { return info ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusolverDnXsyevjSetSortEig(int* info) { return info ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusolverDnXgesvdjSetTolerance(int* info) { return info ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusolverDnXgesvdjSetMaxSweeps(int* info) { return info ? kSuccess : kInvalidValue; }
GPUCAST_EXPORT int cusolverDnXgesvdjSetSortEig(int* info) { return info ? kSuccess : kInvalidValue; }

// ---- One routine in four types. `Eigen`, `Multiply` and so on: real and complex types call the routine by another name. -------------
#define ROUTINES(L, type, Syevd, Syevj, SyevjBatched, Orgqr, Ormqr)                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##potrf_bufferSize(Handle*, int, int n, void*, int, int* size) { return elements(size, kBlock * n); }    \
  GPUCAST_EXPORT int cusolverDn##L##potrf(Handle* h, int, int n) {                                                                         \
    return operation(h, "cusolverDn" #L "potrf", {{"type", type}, {"n", n}});                                                              \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##potrs(Handle* h, int, int n, int columns) {                                                            \
    return operation(h, "cusolverDn" #L "potrs", {{"type", type}, {"n", n}, {"columns", columns}});                                        \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##potrfBatched(Handle* h, int, int n, void*, int, void*, int batch) {                                    \
    return operation(h, "cusolverDn" #L "potrfBatched", {{"type", type}, {"n", n}, {"batch", batch}});                                     \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##potrsBatched(Handle* h, int, int n, int columns, void*, int, void*, int, void*, int batch) {           \
    return operation(h, "cusolverDn" #L "potrsBatched", {{"type", type}, {"n", n}, {"columns", columns}, {"batch", batch}});               \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##potri_bufferSize(Handle*, int, int n, void*, int, int* size) { return elements(size, kBlock * n); }    \
  GPUCAST_EXPORT int cusolverDn##L##potri(Handle* h, int, int n) {                                                                         \
    return operation(h, "cusolverDn" #L "potri", {{"type", type}, {"n", n}});                                                              \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##getrf_bufferSize(Handle*, int m, int n, void*, int, int* size) {                                       \
    return elements(size, factor_elements(m, n));                                                                                          \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##getrf(Handle* h, int m, int n) {                                                                       \
    return operation(h, "cusolverDn" #L "getrf", {{"type", type}, {"m", m}, {"n", n}});                                                    \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##getrs(Handle* h, int, int n, int columns) {                                                            \
    return operation(h, "cusolverDn" #L "getrs", {{"type", type}, {"n", n}, {"columns", columns}});                                        \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##geqrf_bufferSize(Handle*, int m, int n, void*, int, int* size) {                                       \
    return elements(size, factor_elements(m, n));                                                                                          \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##geqrf(Handle* h, int m, int n) {                                                                       \
    return operation(h, "cusolverDn" #L "geqrf", {{"type", type}, {"m", m}, {"n", n}});                                                    \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Orgqr##_bufferSize(Handle*, int m, int n, int, const void*, int, const void*, int* size) {             \
    return elements(size, factor_elements(m, n));                                                                                          \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Orgqr(Handle* h, int m, int n, int k) {                                                                \
    return operation(h, "cusolverDn" #L#Orgqr, {{"type", type}, {"m", m}, {"n", n}, {"k", k}});                                            \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Ormqr##_bufferSize(Handle*, int, int, int m, int n, int, const void*, int, const void*, const void*,   \
                                                       int, int* size) {                                                                   \
    return elements(size, factor_elements(m, n));                                                                                          \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Ormqr(Handle* h, int, int, int m, int n, int k) {                                                      \
    return operation(h, "cusolverDn" #L#Ormqr, {{"type", type}, {"m", m}, {"n", n}, {"k", k}});                                            \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##sytrf_bufferSize(Handle*, int n, void*, int, int* size) { return elements(size, kBlock * n); }         \
  GPUCAST_EXPORT int cusolverDn##L##sytrf(Handle* h, int, int n) {                                                                         \
    return operation(h, "cusolverDn" #L "sytrf", {{"type", type}, {"n", n}});                                                              \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##gesvd_bufferSize(Handle*, int m, int n, int* size) { return elements(size, svd_elements(m, n)); }      \
  GPUCAST_EXPORT int cusolverDn##L##gesvd(Handle* h, signed char, signed char, int m, int n) {                                             \
    return operation(h, "cusolverDn" #L "gesvd", {{"type", type}, {"m", m}, {"n", n}});                                                    \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##gesvdj_bufferSize(Handle*, int, int, int m, int n, const void*, int, const void*, const void*, int,    \
                                                      const void*, int, int* size, void*) {                                                \
    return elements(size, jacobi_svd_elements(m, n));                                                                                      \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##gesvdj(Handle* h, int, int, int m, int n) {                                                            \
    return operation(h, "cusolverDn" #L "gesvdj", {{"type", type}, {"m", m}, {"n", n}});                                                   \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##gesvdjBatched_bufferSize(Handle*, int, int m, int n, const void*, int, const void*, const void*, int,  \
                                                             const void*, int, int* size, void*, int batch) {                              \
    return elements(size, jacobi_svd_elements(m, n) * batch);                                                                              \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##gesvdjBatched(Handle* h, int, int m, int n, void*, int, void*, void*, int, void*, int, void*, int,     \
                                                  void*, void*, int batch) {                                                               \
    return operation(h, "cusolverDn" #L "gesvdjBatched", {{"type", type}, {"m", m}, {"n", n}, {"batch", batch}});                          \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##gesvdaStridedBatched_bufferSize(Handle*, int, int, int m, int n, const void*, int, long long,          \
                                                                    const void*, long long, const void*, int, long long, const void*, int, \
                                                                    long long, int* size, int batch) {                                     \
    return elements(size, jacobi_svd_elements(m, n) * batch);                                                                              \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##gesvdaStridedBatched(Handle* h, int, int, int m, int n, const void*, int, long long, void*, long long, \
                                                         void*, int, long long, void*, int, long long, void*, int, void*,                  \
                                                         double* residuals, int batch) {                                                   \
    if (residuals) std::fill(residuals, residuals + batch, 0.0);                                                                           \
    return operation(h, "cusolverDn" #L "gesvdaStridedBatched", {{"type", type}, {"m", m}, {"n", n}, {"batch", batch}});                   \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Syevd##_bufferSize(Handle*, int, int, int n, const void*, int, const void*, int* size) {               \
    return elements(size, eigen_elements(n));                                                                                              \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Syevd(Handle* h, int, int, int n) {                                                                    \
    return operation(h, "cusolverDn" #L#Syevd, {{"type", type}, {"n", n}});                                                                \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Syevj##_bufferSize(Handle*, int, int, int n, const void*, int, const void*, int* size, void*) {        \
    return elements(size, int64_t{n} * n);                                                                                                 \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##Syevj(Handle* h, int, int, int n) {                                                                    \
    return operation(h, "cusolverDn" #L#Syevj, {{"type", type}, {"n", n}});                                                                \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##SyevjBatched##_bufferSize(Handle*, int, int, int n, const void*, int, const void*, int* size, void*,   \
                                                              int batch) {                                                                 \
    return elements(size, int64_t{n} * n * batch);                                                                                         \
  }                                                                                                                                        \
  GPUCAST_EXPORT int cusolverDn##L##SyevjBatched(Handle* h, int, int, int n, void*, int, void*, void*, int, void*, void*, int batch) {     \
    return operation(h, "cusolverDn" #L#SyevjBatched, {{"type", type}, {"n", n}, {"batch", batch}});                                       \
  }
ROUTINES(S, "float32", syevd, syevj, syevjBatched, orgqr, ormqr)
ROUTINES(D, "float64", syevd, syevj, syevjBatched, orgqr, ormqr)
ROUTINES(C, "complex64", heevd, heevj, heevjBatched, ungqr, unmqr)
ROUTINES(Z, "complex128", heevd, heevj, heevjBatched, ungqr, unmqr)

// ---- The 64 bit interface: sizes in bytes, on the device and on the host ---------------------------------------------------------------
GPUCAST_EXPORT int cusolverDnXgeqrf_bufferSize(Handle*, void*, int64_t m, int64_t n, int type, const void*, int64_t, int, const void*, int,
                                               size_t* device, size_t* host) {
  return bytes(device, host, factor_elements(m, n), type);
}
GPUCAST_EXPORT int cusolverDnXgeqrf(Handle* h, void*, int64_t m, int64_t n, int type) {
  return operation(h, "cusolverDnXgeqrf", {{"type", data_type_name(type)}, {"m", m}, {"n", n}});
}
GPUCAST_EXPORT int cusolverDnXgetrf_bufferSize(Handle*, void*, int64_t m, int64_t n, int type, const void*, int64_t, int, size_t* device,
                                               size_t* host) {
  return bytes(device, host, factor_elements(m, n), type);
}
GPUCAST_EXPORT int cusolverDnXgetrf(Handle* h, void*, int64_t m, int64_t n, int type) {
  return operation(h, "cusolverDnXgetrf", {{"type", data_type_name(type)}, {"m", m}, {"n", n}});
}
GPUCAST_EXPORT int cusolverDnXgetrs(Handle* h, void*, int, int64_t n, int64_t columns, int type) {
  return operation(h, "cusolverDnXgetrs", {{"type", data_type_name(type)}, {"n", n}, {"columns", columns}});
}
GPUCAST_EXPORT int cusolverDnXpotrf_bufferSize(Handle*, void*, int, int64_t n, int type, const void*, int64_t, int, size_t* device,
                                               size_t* host) {
  return bytes(device, host, kBlock * n, type);
}
GPUCAST_EXPORT int cusolverDnXpotrf(Handle* h, void*, int, int64_t n, int type) {
  return operation(h, "cusolverDnXpotrf", {{"type", data_type_name(type)}, {"n", n}});
}
GPUCAST_EXPORT int cusolverDnXpotrs(Handle* h, void*, int, int64_t n, int64_t columns, int type) {
  return operation(h, "cusolverDnXpotrs", {{"type", data_type_name(type)}, {"n", n}, {"columns", columns}});
}
GPUCAST_EXPORT int cusolverDnXsyevd_bufferSize(Handle*, void*, int, int, int64_t n, int type, const void*, int64_t, int, const void*, int,
                                               size_t* device, size_t* host) {
  return bytes(device, host, eigen_elements(n), type);
}
GPUCAST_EXPORT int cusolverDnXsyevd(Handle* h, void*, int, int, int64_t n, int type) {
  return operation(h, "cusolverDnXsyevd", {{"type", data_type_name(type)}, {"n", n}});
}
GPUCAST_EXPORT int cusolverDnXsyevBatched_bufferSize(Handle*, void*, int, int, int64_t n, int type, const void*, int64_t, int, const void*,
                                                     int, size_t* device, size_t* host, int64_t batch) {
  return bytes(device, host, n * n * batch, type);
}
GPUCAST_EXPORT int cusolverDnXsyevBatched(Handle* h, void*, int, int, int64_t n, int type, void*, int64_t, int, void*, int, void*, size_t,
                                          void*, size_t, void*, int64_t batch) {
  return operation(h, "cusolverDnXsyevBatched", {{"type", data_type_name(type)}, {"n", n}, {"batch", batch}});
}
GPUCAST_EXPORT int cusolverDnXgeev_bufferSize(Handle*, void*, int, int, int64_t n, int type, const void*, int64_t, int, const void*, int,
                                              const void*, int64_t, int, const void*, int64_t, int, size_t* device, size_t* host) {
  return bytes(device, host, eigen_elements(n), type);
}
GPUCAST_EXPORT int cusolverDnXgeev(Handle* h, void*, int, int, int64_t n, int type) {
  return operation(h, "cusolverDnXgeev", {{"type", data_type_name(type)}, {"n", n}});
}
GPUCAST_EXPORT int cusolverDnXsytrs_bufferSize(Handle*, int, int64_t n, int64_t, int type, const void*, int64_t, const void*, int, void*,
                                               int64_t, size_t* device, size_t* host) {
  return bytes(device, host, kBlock * n, type);
}
GPUCAST_EXPORT int cusolverDnXsytrs(Handle* h, int, int64_t n, int64_t columns, int type) {
  return operation(h, "cusolverDnXsytrs", {{"type", data_type_name(type)}, {"n", n}, {"columns", columns}});
}
