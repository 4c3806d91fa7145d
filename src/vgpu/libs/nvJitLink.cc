// Virtual nvJitLink: linking succeeds and gives a line of text, which the virtual driver loads like any module. The inline functions of the
// header call names with the version in them, so each version has its own set.
#include "src/vgpu/libs/call.h"

namespace {

enum Result : int { kSuccess = 0, kInvalidInput = 2 };
constexpr char kImage[] = "// gpucast virtual program\n";

int size(size_t value, size_t* out) {
  if (!out) return kInvalidInput;
  *out = value;
  return kSuccess;
}
int contents(const char* from, size_t size_bytes, char* out) {
  if (!out) return kInvalidInput;
  std::memcpy(out, from, size_bytes);
  return kSuccess;
}

}  // namespace

#define LINKER(Prefix, Suffix)                                                                           \
  GPUCAST_EXPORT int Prefix##Create##Suffix(int** handle, uint32_t, const char* const*) {                \
    if (!handle) return kInvalidInput;                                                                   \
    *handle = new int(0);                                                                                \
    return kSuccess;                                                                                     \
  }                                                                                                      \
  GPUCAST_EXPORT int Prefix##Destroy##Suffix(int** handle) {                                             \
    if (!handle) return kInvalidInput;                                                                   \
    delete *handle;                                                                                      \
    *handle = nullptr;                                                                                   \
    return kSuccess;                                                                                     \
  }                                                                                                      \
  GPUCAST_EXPORT int Prefix##AddData##Suffix(int* handle) { return handle ? kSuccess : kInvalidInput; }  \
  GPUCAST_EXPORT int Prefix##AddFile##Suffix(int* handle) { return handle ? kSuccess : kInvalidInput; }  \
  GPUCAST_EXPORT int Prefix##Complete##Suffix(int* handle) { return handle ? kSuccess : kInvalidInput; } \
  OUTPUT(Prefix, Suffix, LinkedCubin, kImage)                                                            \
  OUTPUT(Prefix, Suffix, LinkedPtx, kImage)                                                              \
  OUTPUT(Prefix, Suffix, LinkedLTOIR, kImage)                                                            \
  OUTPUT(Prefix, Suffix, ErrorLog, "")                                                                   \
  OUTPUT(Prefix, Suffix, InfoLog, "")
#define OUTPUT(Prefix, Suffix, What, text)                                                                                \
  GPUCAST_EXPORT int Prefix##Get##What##Size##Suffix(int*, size_t* size_bytes) { return size(sizeof(text), size_bytes); } \
  GPUCAST_EXPORT int Prefix##Get##What##Suffix(int*, char* out) { return contents(text, sizeof(text), out); }

LINKER(nvJitLink, )
#if GPUCAST_CUDA == 12
LINKER(__nvJitLink, _12_0)
LINKER(__nvJitLink, _12_1)
LINKER(__nvJitLink, _12_2)
LINKER(__nvJitLink, _12_3)
LINKER(__nvJitLink, _12_4)
#else
LINKER(__nvJitLink, _13_0)
LINKER(__nvJitLink, _13_1)
LINKER(__nvJitLink, _13_2)
LINKER(__nvJitLink, _13_3)
LINKER(__nvJitLink, _13_4)
#endif
GPUCAST_EXPORT int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  if (!major || !minor) return kInvalidInput;
  *major = static_cast<unsigned>(gpucast::vgpu::profile().runtime_version / 1000);
  *minor = static_cast<unsigned>(gpucast::vgpu::profile().runtime_version % 1000 / 10);
  return kSuccess;
}
