#include "src/kernels/known_kernels.h"

#include <algorithm>
#include <charconv>

#include "src/base/bounded.h"
#include "src/base/sorted_rows.h"

namespace gpucast {
namespace {

// Of each thread: bytes that it reads and writes; loads and steps between barriers that wait for one another; elements that it puts into
// their order.
struct KnownKernel {
  std::string_view name;
  int64_t read = 0, written = 0, loads = 0, steps = 0, sorted = 0;
};

// CUB's tiles have about the same bytes for elements of any size: a thread has 12 to 15 keys with their values in a pass of a sort. The
// steps are by hand, from eval/truth/h100/operators.jsonl.gz, cases with even numbers.
constexpr std::array kKernels = std::to_array<KnownKernel>({
    {"DeviceCompactInitKernel"},
    {"DeviceRadixSortExclusiveSumKernel"},
    {"DeviceRadixSortHistogramKernel", 0, 0, 2, 4},
    {"DeviceRadixSortOnesweepKernel", 192, 192, 3, 19, 12},
    {"DeviceRadixSortSingleTileKernel", 0, 0, 2, 20},
    {"DeviceReduceKernel", 16, 0, 2},
    {"DeviceReduceSingleTileKernel", 0, 0, 2},
    {"DeviceScanByKeyInitKernel"},
    {"DeviceScanByKeyKernel", 60, 60, 2, 7},
    {"DeviceScanInitKernel"},
    {"DeviceScanKernel", 60, 60, 1, 4},
    {"DeviceSelectSweepKernel", 44, 44, 2, 8},
    {"DeviceUniqueByKeySweepKernel", 44, 44, 3, 8},
    {"computeBlockDigitCounts", 0, 0, 2, 8},
    {"computeBlockwiseKthCounts", 0, 0, 1},
    {"computeBlockwiseWithinKCounts", 0, 0, 2, 7},
    {"computeDigitCumSum", 0, 0, 1, 3},
    {"compute_num_of_partial_segments"},
    {"fill_reverse_indices_kernel", 0, 8},
    {"krn_partial_segment_offset", 0, 0, 1},
    {"krn_partial_to_segment_idx", 0, 0, 1},
    {"krn_partials_per_segment", 0, 0, 1},
    {"randperm_handle_duplicate_keys_kernel", 16, 0, 2},
    {"write_indices", 8, 16, 2, 6},
});
static_assert(has_sorted_names(kKernels));

// The last identifier of a mangled name: "kernel" of "_ZN2at6native6kernelIfEEvv".
std::string_view last_identifier(std::string_view name) {
  std::string_view out;
  if (!name.starts_with("_Z")) return out;
  name.remove_prefix(name.starts_with("_ZN") ? 3 : 2);
  size_t size = 0;
  while (true) {
    const auto [digits_end, error] = std::from_chars(name.data(), name.data() + name.size(), size);
    const auto digits = static_cast<size_t>(digits_end - name.data());
    if (error != std::errc() || size > name.size() - digits) return out;
    out = name.substr(digits, size);
    name.remove_prefix(digits + size);
  }
}

int64_t product(const std::array<uint32_t, 3>& sizes) {
  int64_t out = 1;
  for (const uint32_t size : sizes) out = bounded_product({out, std::max(1U, size)});
  return out;
}

}  // namespace

bool is_known_kernel(std::string_view name) { return find_row(kKernels, last_identifier(name)) != nullptr; }

std::optional<Operation> known_kernel(std::string_view name, const std::array<uint32_t, 3>& grid, const std::array<uint32_t, 3>& block) {
  const KnownKernel* row = find_row(kKernels, last_identifier(name));
  if (row == nullptr) return std::nullopt;
  Operation out;
  out.kind = OperationKind::indexing;
  out.waiting_threads = bounded_product({product(grid), product(block)});
  out.bytes_read = bounded_product({out.waiting_threads, row->read});
  out.bytes_written = bounded_product({out.waiting_threads, row->written});
  out.waited_loads = row->loads;
  out.waited_steps = row->steps;
  out.sorted_elements = bounded_product({out.waiting_threads, row->sorted});
  return out;
}

}  // namespace gpucast
