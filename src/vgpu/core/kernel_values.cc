// The few kernels whose results PyTorch's object collectives need, computed here if their inputs are known: the largest of some sizes (a >
// b), their sum, offsets (a + b), concatenation of objects (cat), and fills with a value (zeros). The mangled name identifies a kernel. The
// arguments have the layout of PyTorch 2.6 to 2.14: aten/src/ATen/native/cuda/{Loops,Reduce}.cuh, Shape.cu.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/regions.h"

namespace gpucast::vgpu {
namespace {

constexpr size_t kMost = 4096;  // elements, or bytes to fill

template <typename T>
T load(const void* from, size_t index = 0) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

bool read_int64(uint64_t address, size_t count, std::vector<int64_t>* out) {
  out->resize(count);
  return read_small(address, out->data(), count * sizeof(int64_t)) == count * sizeof(int64_t);
}

// The size of the type at the start of the mangled name; 0: another type.
size_t mangled_bytes(std::string_view type) {
  if (type.starts_with("N3c104HalfE") || type.starts_with("N3c108BFloat16E")) return 2;
  switch (type.empty() ? '\0' : type.front()) {
    case 'b':
    case 'a':
    case 'h':
      return 1;
    case 's':
      return 2;
    case 'i':
    case 'f':
      return 4;
    case 'l':
    case 'd':
      return 8;
    default:
      return 0;
  }
}

// (int N, {value}, {pointer}): torch.zeros, torch.full
bool fill_all(std::string_view type, const void* const* arguments) {
  const auto count = static_cast<size_t>(load<int>(arguments[0])), element = mangled_bytes(type);
  if (element == 0) return false;
  const auto out = load<uint64_t>(arguments[2]);
  if (count * element > kMost) {
    forget_contents(out, count * element);
    return true;
  }
  std::vector<char> bytes(count * element);
  for (size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * element, arguments[1], element);
  write_small(out, bytes.data(), bytes.size());
  return true;
}

// (int N, functor, array of pointers: the output, then the inputs)
bool elementwise(std::string_view name, const void* const* arguments) {
  constexpr std::string_view kFill = "11FillFunctorI";
  if (const size_t fill = name.find(kFill); fill != name.npos) return fill_all(name.substr(fill + kFill.size()), arguments);
  const auto count = static_cast<size_t>(load<int>(arguments[0]));
  if (count > kMost) return false;
  const bool compares = name.find("14CompareFunctorIlE") != name.npos;       // {int: >=, >, <=, <}
  const bool adds = name.find("15CUDAFunctor_addIlE") != name.npos;          // {alpha}: a + alpha b
  const bool shifts = name.find("21CUDAFunctorOnSelf_addIlE") != name.npos;  // {b, alpha}
  if (!compares && !adds && !shifts) return false;
  const auto out = load<uint64_t>(arguments[2]);
  std::vector<int64_t> a, b;
  bool known = read_int64(load<uint64_t>(arguments[2], 1), count, &a);
  if (!shifts) known = read_int64(load<uint64_t>(arguments[2], 2), count, &b) && known;
  const size_t out_bytes = count * (compares ? 1 : sizeof(int64_t));
  if (!known) {
    forget_contents(out, out_bytes);
    return true;
  }
  std::vector<char> flags(count);
  for (size_t i = 0; i < count; ++i) {
    if (compares) {
      const int how = load<int>(arguments[1]);
      flags[i] = how == 0 ? a[i] >= b[i] : how == 1 ? a[i] > b[i] : how == 2 ? a[i] <= b[i] : a[i] < b[i];
    } else {
      const uint64_t other = adds ? static_cast<uint64_t>(b[i]) * load<uint64_t>(arguments[1])
                                  : load<uint64_t>(arguments[1]) * load<uint64_t>(arguments[1], 1);
      a[i] = static_cast<int64_t>(static_cast<uint64_t>(a[i]) + other);
    }
  }
  write_small(out, compares ? static_cast<const void*>(flags.data()) : a.data(), out_bytes);
  return true;
}

// (ReduceOp): {operation, identity, {element bytes, inputs, outputs, ...}, ..., source, destination, ...}
bool sum(const void* const* arguments) {
  const char* const operation = static_cast<const char*>(arguments[0]);
  const auto inputs = static_cast<size_t>(load<int>(operation + 20)), outputs = static_cast<size_t>(load<int>(operation + 24));
  if (load<int>(operation + 16) != sizeof(int64_t) || outputs != 1 || inputs == 0 || inputs > kMost) return false;
  constexpr size_t kSource = 992;  // after two tables of strides
  const auto from = load<uint64_t>(operation + kSource), to = load<uint64_t>(operation + kSource + 8);
  if (!in_device_region(from) || !in_device_region(to)) return false;
  std::vector<int64_t> values;
  if (!read_int64(from, inputs, &values)) {
    forget_contents(to, sizeof(int64_t));
    return true;
  }
  uint64_t all = 0;
  for (const int64_t value : values) all += static_cast<uint64_t>(value);
  write_small(to, &all, sizeof all);
  return true;
}

// (output, {inputs[128], offsets[128], sizes[128], elements[128], ...}, ...) of vectors
bool concatenate(std::string_view name, const unsigned grid[3], const void* const* arguments) {
  constexpr std::string_view kElement = "10OpaqueTypeILj", kVector = "EEEjLi1ELi128ELi1E";  // one dimension, batches of 128
  const size_t at = name.find(kElement), element_at = at + kElement.size();
  if (at == name.npos || name.substr(std::min(element_at + 1, name.size())).find(kVector) != 0) return false;
  const auto element = static_cast<size_t>(name[element_at] - '0');
  if (element == 0 || element > 8) return false;
  constexpr size_t kBatch = 128;
  const auto out = load<uint64_t>(arguments[0]);
  const char* const inputs = static_cast<const char*>(arguments[1]);
  const char* const offsets = inputs + kBatch * sizeof(uint64_t);
  const char* const sizes = offsets + kBatch * sizeof(uint32_t);
  const size_t count = grid[1];
  if (count > kBatch) return false;
  for (size_t i = 0; i < count; ++i) {
    const size_t size = load<uint32_t>(sizes, i) * element, offset = load<uint32_t>(offsets, i) * element;
    if (size > kSmallCopyBytes) return false;
    std::vector<char> bytes(size);
    if (read_small(load<uint64_t>(inputs, i), bytes.data(), size) == size) {
      write_small(out + offset, bytes.data(), size);
    } else {
      forget_contents(out + offset, size);
    }
  }
  return true;
}

}  // namespace

void kernel_written(const char* mangled, const unsigned grid[3], const void* const* arguments) {
  note_kernel(mangled, arguments);
  if (!any_contents()) return;
  const std::string_view name(mangled);
  bool done = false;
  if (arguments == nullptr) {
    done = false;
  } else if (name.find("vectorized_elementwise_kernel") != name.npos || name.find("27unrolled_elementwise_kernelI") != name.npos) {
    done = elementwise(name, arguments);
  } else if (name.find("13reduce_kernelI") != name.npos && name.find("11sum_functorIlll") != name.npos) {
    done = sum(arguments);
  } else if (name.find("CatArrayBatchedCopy") != name.npos) {
    done = concatenate(name, grid, arguments);
  }
  if (!done) device_written();
}

}  // namespace gpucast::vgpu
