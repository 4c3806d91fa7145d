// Virtual cuFFT: plans remember their shape, executions are logged.
//
// Work area (a model; cuFFT's documentation only says that it is about the size of the signal, and more for sizes with large prime
// factors): none for a one-dimensional transform that one kernel can do; otherwise the size of the complex signal, and four times that if a
// dimension has a prime factor above 127 (Bluestein's algorithm pads to more than twice the size).
#include <map>
#include <memory>
#include <mutex>

#include "src/vgpu/libs/call.h"

namespace {

using gpucast::vgpu::data_type_name;
using gpucast::vgpu::launched;
using gpucast::vgpu::number;

enum Result : int { kSuccess = 0, kInvalidPlan = 1, kAllocationFailed = 2, kInvalidType = 3, kInvalidValue = 4, kInvalidSize = 8 };
enum : int { kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69 };
constexpr int64_t kOneKernel = 4096;

struct Plan {
  void* stream = nullptr;
  bool automatic_allocation = true;
  std::vector<int64_t> shape;
  int64_t batch = 0;
  int input_type = 0, output_type = 0;  // cudaDataType_t
  size_t work_bytes = 0;
  uint64_t own_work_area = 0;
};

std::mutex plans_mutex;
// Never destroyed: PyTorch destroys its plans when the process ends.
std::map<int, std::shared_ptr<Plan>>& plans() {
  static auto& all = *new std::map<int, std::shared_ptr<Plan>>;
  return all;
}
std::shared_ptr<Plan> find(int handle) {
  const std::lock_guard lock(plans_mutex);
  const auto found = plans().find(handle);
  return found == plans().end() ? nullptr : found->second;
}

int64_t largest_prime_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t factor = 2; factor * factor <= n; ++factor) {
    while (n % factor == 0) {
      largest = factor;
      n /= factor;
    }
  }
  return n > 1 ? n : largest;
}

size_t work_area_bytes(const std::vector<int64_t>& shape, int64_t batch, int type) {
  int64_t signal = batch;
  bool bluestein = false;
  for (const int64_t n : shape) {
    signal *= n;
    bluestein |= largest_prime_factor(n) > 127;
  }
  if (shape.size() == 1 && shape[0] <= kOneKernel && !bluestein) return 0;
  const bool twice = type == 1 || type == 5;
  const bool half = type == 2 || type == 6;
  const size_t element_bytes = twice ? 16 : half ? 4 : 8;
  return static_cast<size_t>(signal) * element_bytes * (bluestein ? 4 : 1);
}

// cufftType -> the two cudaDataType_t.
bool types(int type, int* input, int* output) {
  switch (type) {
    case kR2C:
      *input = 0, *output = 4;
      return true;
    case kC2R:
      *input = 4, *output = 0;
      return true;
    case kC2C:
      *input = 4, *output = 4;
      return true;
    case kD2Z:
      *input = 1, *output = 5;
      return true;
    case kZ2D:
      *input = 5, *output = 1;
      return true;
    case kZ2Z:
      *input = 5, *output = 5;
      return true;
    default:
      return false;
  }
}

int make(int handle, std::vector<int64_t> shape, int64_t batch, int input_type, int output_type, size_t* work_bytes) {
  const std::shared_ptr<Plan> plan = find(handle);
  if (!plan) return kInvalidPlan;
  if (shape.empty() || batch < 1) return kInvalidSize;
  for (const int64_t n : shape) {
    if (n < 1) return kInvalidSize;
  }
  plan->work_bytes = work_area_bytes(shape, batch, input_type);
  plan->shape = std::move(shape);
  plan->batch = batch;
  plan->input_type = input_type;
  plan->output_type = output_type;
  if (work_bytes) *work_bytes = plan->work_bytes;
  if (plan->automatic_allocation && plan->work_bytes) {
    if (gpucast::vgpu::device_alloc(plan->work_bytes, &plan->own_work_area) != gpucast::vgpu::Status::ok) return kAllocationFailed;
  }
  return kSuccess;
}
int make(int handle, std::vector<int64_t> shape, int64_t batch, int type, size_t* work_bytes) {
  int input = 0, output = 0;
  return types(type, &input, &output) ? make(handle, std::move(shape), batch, input, output, work_bytes) : static_cast<int>(kInvalidType);
}

int execute(int handle, const char* name, const void* input, const void* output, int direction) {
  const std::shared_ptr<Plan> plan = find(handle);
  if (!plan || plan->shape.empty()) return kInvalidPlan;
  launched("cufft", name, number(plan->stream),
           {{"type", data_type_name(plan->input_type)},
            {"type_out", data_type_name(plan->output_type)},
            {"shape", plan->shape},
            {"batch", plan->batch},
            {"direction", direction},
            {"in_place", input == output ? 1 : 0}});
  return kSuccess;
}

template <typename Int>
std::vector<int64_t> shape_of(int rank, const Int* n) {
  return n && rank > 0 && rank <= 3 ? std::vector<int64_t>(n, n + rank) : std::vector<int64_t>{};
}

}  // namespace

GPUCAST_EXPORT int cufftCreate(int* handle) {
  if (!handle) return kInvalidValue;
  static int next = 1;
  const std::lock_guard lock(plans_mutex);
  plans()[next] = std::make_shared<Plan>();
  *handle = next++;
  return kSuccess;
}
GPUCAST_EXPORT int cufftDestroy(int handle) {
  std::shared_ptr<Plan> plan;
  {
    const std::lock_guard lock(plans_mutex);
    const auto found = plans().find(handle);
    if (found == plans().end()) return kInvalidPlan;
    plan = found->second;
    plans().erase(found);
  }
  if (plan->own_work_area) gpucast::vgpu::device_free(plan->own_work_area);
  return kSuccess;
}
GPUCAST_EXPORT int cufftGetVersion(int* version) {
  if (!version) return kInvalidValue;
  *version = gpucast::vgpu::profile().cufft_version;
  return kSuccess;
}
GPUCAST_EXPORT int cufftGetProperty(int part, int* value) {
  if (!value) return kInvalidValue;
  *value = gpucast::vgpu::version_part(gpucast::vgpu::profile().cufft_version, part, 1000, 100);
  return kSuccess;
}
GPUCAST_EXPORT int cufftSetStream(int handle, void* stream) {
  const std::shared_ptr<Plan> plan = find(handle);
  if (!plan) return kInvalidPlan;
  plan->stream = stream;
  return kSuccess;
}
GPUCAST_EXPORT int cufftSetAutoAllocation(int handle, int automatic) {
  const std::shared_ptr<Plan> plan = find(handle);
  if (!plan) return kInvalidPlan;
  plan->automatic_allocation = automatic != 0;
  return kSuccess;
}
GPUCAST_EXPORT int cufftSetWorkArea(int handle, void* area) {
  const std::shared_ptr<Plan> plan = find(handle);
  if (!plan) return kInvalidPlan;
  if (plan->work_bytes) gpucast::vgpu::log_workspace("cufft", number(area), plan->work_bytes);
  return kSuccess;
}
GPUCAST_EXPORT int cufftGetSize(int handle, size_t* work_bytes) {
  const std::shared_ptr<Plan> plan = find(handle);
  if (!plan) return kInvalidPlan;
  if (!work_bytes) return kInvalidValue;
  *work_bytes = plan->work_bytes;
  return kSuccess;
}

// ---- Plans -------------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cufftXtMakePlanMany(int handle, int rank, const long long* n, const long long*, long long, long long, int input_type,
                                       const long long*, long long, long long, int output_type, long long batch, size_t* work_bytes, int) {
  return make(handle, shape_of(rank, n), batch, input_type, output_type, work_bytes);
}
GPUCAST_EXPORT int cufftXtGetSizeMany(int, int rank, const long long* n, const long long*, long long, long long, int input_type,
                                      const long long*, long long, long long, int, long long batch, size_t* work_bytes, int) {
  if (!work_bytes) return kInvalidValue;
  *work_bytes = work_area_bytes(shape_of(rank, n), batch, input_type);
  return kSuccess;
}
GPUCAST_EXPORT int cufftMakePlan1d(int handle, int nx, int type, int batch, size_t* work_bytes) {
  return make(handle, {nx}, batch, type, work_bytes);
}
GPUCAST_EXPORT int cufftMakePlan2d(int handle, int nx, int ny, int type, size_t* work_bytes) {
  return make(handle, {nx, ny}, 1, type, work_bytes);
}
GPUCAST_EXPORT int cufftMakePlan3d(int handle, int nx, int ny, int nz, int type, size_t* work_bytes) {
  return make(handle, {nx, ny, nz}, 1, type, work_bytes);
}
GPUCAST_EXPORT int cufftMakePlanMany(int handle, int rank, const int* n, const int*, int, int, const int*, int, int, int type, int batch,
                                     size_t* work_bytes) {
  return make(handle, shape_of(rank, n), batch, type, work_bytes);
}
GPUCAST_EXPORT int cufftMakePlanMany64(int handle, int rank, const long long* n, const long long*, long long, long long, const long long*,
                                       long long, long long, int type, long long batch, size_t* work_bytes) {
  return make(handle, shape_of(rank, n), batch, type, work_bytes);
}
GPUCAST_EXPORT int cufftPlan1d(int* handle, int nx, int type, int batch) {
  const int result = cufftCreate(handle);
  return result ? result : cufftMakePlan1d(*handle, nx, type, batch, nullptr);
}
GPUCAST_EXPORT int cufftPlan2d(int* handle, int nx, int ny, int type) {
  const int result = cufftCreate(handle);
  return result ? result : cufftMakePlan2d(*handle, nx, ny, type, nullptr);
}
GPUCAST_EXPORT int cufftPlan3d(int* handle, int nx, int ny, int nz, int type) {
  const int result = cufftCreate(handle);
  return result ? result : cufftMakePlan3d(*handle, nx, ny, nz, type, nullptr);
}
GPUCAST_EXPORT int cufftPlanMany(int* handle, int rank, const int* n, const int*, int, int, const int*, int, int, int type, int batch) {
  const int result = cufftCreate(handle);
  return result ? result : make(*handle, shape_of(rank, n), batch, type, nullptr);
}

// ---- Execution ---------------------------------------------------------------------------------------------------------------------
GPUCAST_EXPORT int cufftXtExec(int handle, void* input, void* output, int direction) {
  return execute(handle, "cufftXtExec", input, output, direction);
}
#define EXECUTE_COMPLEX(Name) \
  GPUCAST_EXPORT int Name(int handle, void* input, void* output, int direction) { return execute(handle, #Name, input, output, direction); }
EXECUTE_COMPLEX(cufftExecC2C)
EXECUTE_COMPLEX(cufftExecZ2Z)
#define EXECUTE_REAL(Name, direction) \
  GPUCAST_EXPORT int Name(int handle, void* input, void* output) { return execute(handle, #Name, input, output, direction); }
EXECUTE_REAL(cufftExecR2C, -1)
EXECUTE_REAL(cufftExecD2Z, -1)
EXECUTE_REAL(cufftExecC2R, 1)
EXECUTE_REAL(cufftExecZ2D, 1)
