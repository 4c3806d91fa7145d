// Sums and variances over many rows on CUDA. Several thread blocks share an output and combine their results in a buffer in device memory
// (ATen/native/cuda/Reduce.cuh, setReduceConfig and ReduceConfig::global_memory_size). It can be larger than the input: 6 MiB for the
// gradient of a bias, summed over 1024 rows of 768, on a card with 28 multiprocessors.
//
// Only sums over the rows of a tensor with the memory order [rows, columns] need a large buffer. Other layouts are not changed.

#include <algorithm>
#include <charconv>

#include "src/orchestrate/rules.h"

namespace gpucast {

int64_t sum_buffer_bytes(const Gpu& gpu, int64_t rows, int64_t columns, int64_t accumulator_bytes, int64_t* semaphore_bytes) {
  constexpr int64_t kMostThreads = 512, kWarp = 32, kMinValues = 16, kMaxValues = 256;
  const auto div_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto last_power = [](int64_t n) {
    int64_t power = 1;
    while (power * 2 <= n) power *= 2;
    return power;
  };
  *semaphore_bytes = 0;
  if (rows <= 0 || columns <= 0 || gpu.multiprocessors <= 0) return 0;
  int64_t vector = 4;  // columns that a thread reads at once
  while (columns % vector != 0) vector /= 2;
  const int64_t most = kMostThreads / vector;
  const int64_t wide = std::min(last_power(columns / vector), most), high = std::min(last_power(rows), most);
  int64_t width = std::min(wide, kWarp);
  const int64_t height = std::min(high, most / width);
  width = std::min(wide, most / height);
  int64_t values = rows;  // the number of values that a thread sums
  if (values < std::min(height * kMinValues, kMaxValues)) return 0;
  values = div_up(rows, height);
  const int64_t grid = div_up(columns / vector, width);
  const int64_t target = int64_t{gpu.multiprocessors} * (gpu.max_threads_per_multiprocessor / (width * height));
  if (values < kMaxValues || grid > target) return 0;
  const int64_t blocks = std::max(std::min(div_up(target, grid), div_up(values, kMinValues)), div_up(values, kMaxValues));
  if (blocks <= 1) return 0;
  *semaphore_bytes = 4 * grid;
  return accumulator_bytes * columns * blocks * width * vector;
}

namespace {

// The dimensions of a sum or mean: its argument "[0, 1]".
std::vector<int64_t> reduced_dimensions(const std::string& text) {
  std::vector<int64_t> out;
  for (size_t at = 0; at < text.size();) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    if (error != std::errc()) {
      ++at;
      continue;
    }
    out.push_back(number);
    at = static_cast<size_t>(end - text.data());
  }
  return out;
}

// The numbers that a thread keeps: for a variance the mean, the squares and two counts (SharedReduceOps.h, WelfordData). 0: not a sum.
int64_t accumulators_of(std::string_view name) {
  if (name == "aten::sum" || name == "aten::mean") return 1;
  return name == "aten::std" || name == "aten::var" || name == "aten::std_mean" || name == "aten::var_mean" ? 4 : 0;
}

// [rows, columns] for a sum over the leading dimensions of a contiguous tensor; false for anything else.
bool rows_and_columns(const ProfileFacts& facts, SpanIndex op, int64_t* rows, int64_t* columns) {
  const auto& inputs = facts.dims(op).inputs;
  const auto& strides = facts.strides(op).inputs;
  const auto& concrete = facts.concrete(op);
  if (inputs.empty() || strides.empty() || concrete.size() < 2 || inputs[0].size() < 2 || strides[0].size() != inputs[0].size())
    return false;
  const auto ndim = static_cast<int64_t>(inputs[0].size());
  int64_t expected = 1;
  for (size_t i = inputs[0].size(); i-- > 0; expected *= inputs[0][i]) {
    if (strides[0][i] != expected && inputs[0][i] != 1) return false;
  }
  std::vector<int64_t> over = reduced_dimensions(concrete[1]);
  for (int64_t& dimension : over) dimension += dimension < 0 ? ndim : 0;
  std::sort(over.begin(), over.end());
  *rows = *columns = 1;
  for (size_t i = 0; i < over.size(); ++i) {
    if (over[i] != static_cast<int64_t>(i) || over[i] >= ndim) return false;
    *rows *= inputs[0][i];
  }
  for (size_t i = over.size(); i < inputs[0].size(); ++i) *columns *= inputs[0][i];
  return !over.empty() && *columns > 1;
}

}  // namespace

void add_reduction_buffers(const ProfileFacts& facts, const OrchestrateOptions& /*options*/, Sequence* sequence) {
  for (SpanIndex i = 0; i < facts.trace.spans.size(); ++i) {
    const int64_t accumulators = facts.is_op(i) ? accumulators_of(facts.name(i)) : 0;
    const SpanIndex parent = facts.tree.parent[i];
    if (accumulators == 0 || (parent != kNoSpan && facts.name(parent) == facts.name(i) && accumulators > 1)) continue;
    if (sequence->in_other_kernel(facts.span(i).begin_ns)) continue;
    const PhaseWindow* window = facts.phases.window_at(facts.span(i).begin_ns);
    if (window == nullptr || (window->phase != Phase::forward && window->phase != Phase::backward)) continue;
    int64_t rows = 0, columns = 0, semaphores = 0;
    if (!rows_and_columns(facts, i, &rows, &columns)) continue;
    const int64_t accumulator_bytes = accumulators * (!facts.types(i).empty() && facts.types(i)[0] == "double" ? 8 : 4);
    const int64_t bytes = sum_buffer_bytes(facts.gpu, rows, columns, accumulator_bytes, &semaphores);
    if (bytes == 0) continue;
    const int64_t end_ns = facts.span(i).end_ns, order = INT64_MAX / 2;
    sequence->add(bytes, {end_ns, order}, {end_ns, order + 3}, i, "reductions");
    sequence->add(semaphores, {end_ns, order + 1}, {end_ns, order + 2}, i, "reductions");
  }
}

}  // namespace gpucast
