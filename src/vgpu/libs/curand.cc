// Virtual cuRAND: generators with settings; they generate zeros. PyTorch has its own generators.
#include "src/vgpu/libs/call.h"

namespace {

using gpucast::vgpu::launched;
using gpucast::vgpu::number;

enum Status : int { kSuccess = 0, kNotInitialized = 101, kOutOfRange = 104 };

struct Generator {
  void* stream = nullptr;
  bool host = false;
};

int generate(Generator* generator, const char* name, void* out, size_t count, size_t element_bytes) {
  if (!generator) return kNotInitialized;
  if (generator->host && out) std::memset(out, 0, count * element_bytes);
  launched("curand", name, number(generator->stream), {{"count", count}, {"element_bytes", element_bytes}});
  return kSuccess;
}

int create(Generator** generator, bool host) {
  if (!generator) return kOutOfRange;
  *generator = new Generator{nullptr, host};
  return kSuccess;
}

}  // namespace

GPUCAST_EXPORT int curandCreateGenerator(Generator** generator, int) { return create(generator, false); }
GPUCAST_EXPORT int curandCreateGeneratorHost(Generator** generator, int) { return create(generator, true); }
GPUCAST_EXPORT int curandDestroyGenerator(Generator* generator) {
  delete generator;
  return kSuccess;
}
GPUCAST_EXPORT int curandGetVersion(int* version) {
  if (!version) return kOutOfRange;
  *version = gpucast::vgpu::profile().curand_version;
  return kSuccess;
}
GPUCAST_EXPORT int curandGetProperty(int part, int* value) {
  if (!value) return kOutOfRange;
  *value = gpucast::vgpu::version_part(gpucast::vgpu::profile().curand_version, part, 1000, 100);
  return kSuccess;
}
GPUCAST_EXPORT int curandSetStream(Generator* generator, void* stream) {
  if (!generator) return kNotInitialized;
  generator->stream = stream;
  return kSuccess;
}
GPUCAST_EXPORT int curandSetPseudoRandomGeneratorSeed(Generator* generator, unsigned long long) {
  return generator ? kSuccess : kNotInitialized;
}
GPUCAST_EXPORT int curandSetGeneratorOffset(Generator* generator, unsigned long long) { return generator ? kSuccess : kNotInitialized; }
GPUCAST_EXPORT int curandSetGeneratorOrdering(Generator* generator, int) { return generator ? kSuccess : kNotInitialized; }
GPUCAST_EXPORT int curandSetQuasiRandomGeneratorDimensions(Generator* generator, unsigned) {
  return generator ? kSuccess : kNotInitialized;
}
GPUCAST_EXPORT int curandGenerateSeeds(Generator* generator) { return generator ? kSuccess : kNotInitialized; }
#define GENERATE(Name, element_bytes) \
  GPUCAST_EXPORT int Name(Generator* generator, void* out, size_t count) { return generate(generator, #Name, out, count, element_bytes); }
GENERATE(curandGenerate, 4)
GENERATE(curandGenerateLongLong, 8)
GENERATE(curandGenerateUniform, 4)
GENERATE(curandGenerateUniformDouble, 8)
GENERATE(curandGenerateNormal, 4)
GENERATE(curandGenerateNormalDouble, 8)
GENERATE(curandGenerateLogNormal, 4)
GENERATE(curandGenerateLogNormalDouble, 8)
GENERATE(curandGeneratePoisson, 4)
