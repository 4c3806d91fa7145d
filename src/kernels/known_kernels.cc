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

// An identifier with its length before it, taken off the front: "11AdamFunctorIffE" leaves "IffE". Empty: there is none.
std::string_view take_identifier(std::string_view* name) {
  size_t size = 0;
  const auto [digits_end, error] = std::from_chars(name->data(), name->data() + name->size(), size);
  const auto digits = static_cast<size_t>(digits_end - name->data());
  if (error != std::errc() || size > name->size() - digits) return {};
  const std::string_view out = name->substr(digits, size);
  name->remove_prefix(digits + size);
  return out;
}

// The last identifier of a mangled name: "kernel" of "_ZN2at6native6kernelIfEEvv".
std::string_view last_identifier(std::string_view name) {
  std::string_view out;
  if (!name.starts_with("_Z")) return out;
  name.remove_prefix(name.starts_with("_ZN") ? 3 : 2);
  for (std::string_view next = take_identifier(&name); !next.empty(); next = take_identifier(&name)) out = next;
  return out;
}

// apex's functors for lists of tensors, which DeepSpeed has too (csrc/multi_tensor_*.cu there): how many tensors an element reads and
// writes. A block has a chunk of a tensor; a tensor's last chunk counts as full.
struct ListFunctor {
  std::string_view name;
  int64_t read = 0, written = 0;
};
constexpr std::array kListFunctors = std::to_array<ListFunctor>({
    {"AdamFunctor", 4, 3},
    {"AxpbyFunctor", 2, 1},
    {"L2NormFunctor", 1, 0},
    {"ScaleFunctor", 1, 1},
    {"UnscaleL2NormFunctor", 1, 0},
});
static_assert(has_sorted_names(kListFunctors));
constexpr std::string_view kListKernel = "_Z25multi_tensor_apply_kernelI18TensorListMetadataILi";
constexpr int64_t kChunkElements = int64_t{2048} * 32;

// Of the first and the last type of a template's arguments: float, double, or a class of 16 bits.
std::pair<int64_t, int64_t> first_and_last_bytes(std::string_view arguments) {
  std::pair<int64_t, int64_t> out = {0, 0};
  if (arguments.starts_with('I')) arguments.remove_prefix(1);
  while (!arguments.empty() && arguments[0] != 'E') {
    out.second = arguments[0] == 'f' ? 4 : arguments[0] == 'd' ? 8 : 2;
    if (out.first == 0) out.first = out.second;
    const size_t end = arguments[0] == 'N' ? arguments.find('E') : 0;
    if (end == std::string_view::npos) break;
    arguments.remove_prefix(end + 1);
  }
  return out;
}

std::optional<Operation> list_kernel(std::string_view name, int64_t blocks) {
  if (!name.starts_with(kListKernel)) return std::nullopt;
  const size_t functor_at = name.find("EE", kListKernel.size());
  if (functor_at == std::string_view::npos) return std::nullopt;
  name.remove_prefix(functor_at + 2);
  const ListFunctor* row = find_row(kListFunctors, take_identifier(&name));
  if (row == nullptr) return std::nullopt;
  const auto [read_bytes, written_bytes] = first_and_last_bytes(name);
  Operation out;
  out.kind = OperationKind::optimizer;
  out.bytes_read = bounded_product({blocks, kChunkElements, row->read, read_bytes});
  out.bytes_written = bounded_product({blocks, kChunkElements, row->written, written_bytes});
  return out;
}

int64_t product(const std::array<uint32_t, 3>& sizes) {
  int64_t out = 1;
  for (const uint32_t size : sizes) out = bounded_product({out, std::max(1U, size)});
  return out;
}

}  // namespace

bool is_known_kernel(std::string_view name) { return find_row(kKernels, last_identifier(name)) != nullptr || list_kernel(name, 1); }

std::optional<Operation> known_kernel(std::string_view name, const std::array<uint32_t, 3>& grid, const std::array<uint32_t, 3>& block) {
  const KnownKernel* row = find_row(kKernels, last_identifier(name));
  if (row == nullptr) return list_kernel(name, product(grid));
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
