// What the libraries of libs/*.cc share: exporting a function, and logging a call with its shapes.
//
// Pointers to NVIDIA's opaque types and to data are `void*` here: the calling convention only sees a pointer. A function may declare only
// its first arguments if it needs no others; the caller cleans up the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "src/vgpu/core/core.h"

#define GPUCAST_EXPORT extern "C" __attribute__((visibility("default")))

namespace gpucast::vgpu {

// One argument of a logged call: a number, a word or a list of numbers.
struct Field {
  const char* key;
  std::string json;
  Field(const char* k, int64_t number) : key(k), json(std::to_string(number)) {}
  Field(const char* k, int number) : key(k), json(std::to_string(number)) {}
  Field(const char* k, size_t number) : key(k), json(std::to_string(number)) {}
  Field(const char* k, const char* word) : key(k), json('"' + std::string(word) + '"') {}
  Field(const char* k, const std::vector<int64_t>& numbers) : key(k), json("[") {
    for (size_t i = 0; i < numbers.size(); ++i) json += (i ? "," : "") + std::to_string(numbers[i]);
    json += ']';
  }
};

inline std::string json_object(std::span<const Field> fields) {
  std::string json = "{";
  for (const Field& field : fields) {
    if (json.size() > 1) json += ',';
    ((json += '"') += field.key) += "\":";
    json += field.json;
  }
  return json + '}';
}
inline std::string json_object(std::initializer_list<Field> fields) { return json_object(std::span(fields.begin(), fields.size())); }

// A call that would launch kernels. It is logged, and the contents of small copies in device memory are forgotten.
inline void launched(const char* library, const char* name, uint64_t stream, std::initializer_list<Field> fields = {}) {
  log_call(library, name, json_object(fields).c_str(), stream);
  device_written();
}

inline uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Version numbers as cuBLAS and others pack them: the major, minor and patch numbers of 120405 for step 10000, 100.
inline int version_part(int version, int part, int major_step = 10000, int minor_step = 100) {
  if (part == 0) return version / major_step;
  if (part == 1) return version % major_step / minor_step;
  return version % minor_step;
}

// cudaDataType_t
inline const char* data_type_name(int type) {
  switch (type) {
    case 0:
      return "float32";
    case 1:
      return "float64";
    case 2:
      return "float16";
    case 3:
      return "int8";
    case 4:
      return "complex64";
    case 5:
      return "complex128";
    case 6:
      return "complex32";
    case 8:
      return "uint8";
    case 10:
      return "int32";
    case 14:
      return "bfloat16";
    case 24:
      return "int64";
    case 28:
      return "float8_e4m3";
    case 29:
      return "float8_e5m2";
    case 30:
      return "float8_ue8m0";
    case 33:
      return "float4_e2m1";
    default:
      return "other";
  }
}

inline size_t data_type_bytes(int type) {
  switch (type) {
    case 1:
    case 4:
    case 24:
      return 8;
    case 2:
    case 6:
    case 14:
      return 2;
    case 3:
    case 8:
    case 28:
    case 29:
    case 30:
    case 33:
      return 1;
    case 5:
      return 16;
    default:
      return 4;
  }
}

}  // namespace gpucast::vgpu
