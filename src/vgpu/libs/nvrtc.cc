// Virtual NVRTC: a program "compiles" to a line of text, which the virtual driver loads like any module. A name is its own lowered name, so
// a kernel is found and logged under its name in the source.
#include <map>

#include "src/vgpu/libs/call.h"

namespace {

enum Result : int { kSuccess = 0, kInvalidInput = 3, kInvalidProgram = 4, kNameNotFound = 10 };

struct Program {
  std::string name;
  std::map<std::string, std::string> expressions;  // stable addresses: callers keep pointers to the names
};

// Zero-terminated, as PTX is.
const std::string& image() {
  static const auto& text = *new std::string("// gpucast virtual program\n.version 8.0\n.target sm_50\n.address_size 64\n");
  return text;
}

int size(const Program* program, size_t value, size_t* out) {
  if (!program) return kInvalidProgram;
  if (!out) return kInvalidInput;
  *out = value;
  return kSuccess;
}

}  // namespace

GPUCAST_EXPORT const char* nvrtcGetErrorString(int result) {
  static const char* const names[] = {"NVRTC_SUCCESS",
                                      "NVRTC_ERROR_OUT_OF_MEMORY",
                                      "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                      "NVRTC_ERROR_INVALID_INPUT",
                                      "NVRTC_ERROR_INVALID_PROGRAM",
                                      "NVRTC_ERROR_INVALID_OPTION",
                                      "NVRTC_ERROR_COMPILATION",
                                      "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                      "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                      "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                      "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                      "NVRTC_ERROR_INTERNAL_ERROR"};
  return result >= 0 && result < 12 ? names[result] : "NVRTC_ERROR_UNKNOWN";
}
GPUCAST_EXPORT int nvrtcVersion(int* major, int* minor) {
  if (!major || !minor) return kInvalidInput;
  *major = gpucast::vgpu::profile().runtime_version / 1000;
  *minor = gpucast::vgpu::profile().runtime_version % 1000 / 10;
  return kSuccess;
}
GPUCAST_EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  if (!count) return kInvalidInput;
  *count = 1;
  return kSuccess;
}
GPUCAST_EXPORT int nvrtcGetSupportedArchs(int* architectures) {
  if (!architectures) return kInvalidInput;
  architectures[0] = gpucast::vgpu::profile().compute_major * 10 + gpucast::vgpu::profile().compute_minor;
  return kSuccess;
}
GPUCAST_EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char* name, int, const char* const*,
                                      const char* const*) {
  if (!program || !source) return kInvalidInput;
  *program = new Program{name ? name : "", {}};
  return kSuccess;
}
GPUCAST_EXPORT int nvrtcDestroyProgram(Program** program) {
  if (!program || !*program) return kInvalidProgram;
  delete *program;
  *program = nullptr;
  return kSuccess;
}
GPUCAST_EXPORT int nvrtcCompileProgram(Program* program, int, const char* const*) { return program ? kSuccess : kInvalidProgram; }
GPUCAST_EXPORT int nvrtcAddNameExpression(Program* program, const char* expression) {
  if (!program) return kInvalidProgram;
  if (!expression) return kInvalidInput;
  program->expressions[expression] = expression;
  return kSuccess;
}
GPUCAST_EXPORT int nvrtcGetLoweredName(Program* program, const char* expression, const char** lowered) {
  if (!program) return kInvalidProgram;
  if (!expression || !lowered) return kInvalidInput;
  const auto found = program->expressions.find(expression);
  if (found == program->expressions.end()) return kNameNotFound;
  *lowered = found->second.c_str();
  return kSuccess;
}
GPUCAST_EXPORT int nvrtcGetProgramLogSize(Program* program, size_t* size_bytes) { return size(program, 1, size_bytes); }
GPUCAST_EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  if (!program) return kInvalidProgram;
  if (!log) return kInvalidInput;
  log[0] = '\0';
  return kSuccess;
}
#define IMAGE(Kind)                                                                                                                       \
  GPUCAST_EXPORT int nvrtcGet##Kind##Size(Program* program, size_t* size_bytes) { return size(program, image().size() + 1, size_bytes); } \
  GPUCAST_EXPORT int nvrtcGet##Kind(Program* program, char* out) {                                                                        \
    if (!program) return kInvalidProgram;                                                                                                 \
    if (!out) return kInvalidInput;                                                                                                       \
    std::memcpy(out, image().c_str(), image().size() + 1);                                                                                \
    return kSuccess;                                                                                                                      \
  }
IMAGE(PTX)
IMAGE(CUBIN)
IMAGE(LTOIR)
