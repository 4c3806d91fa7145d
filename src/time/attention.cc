#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"
#include "src/time/round_up.h"

namespace gpucast {
namespace {

// Kernels exist for some head widths; other heads use the next larger one. Hopper has a kernel for 192.
double padded_width(double width, int capability) {
  for (const double made : {32.0, 64.0, 96.0, 128.0, 192.0, 256.0, 512.0}) {
    if (made == 192 && capability < 90) continue;
    if (width <= made) return made;
  }
  return round_up(width, 512);
}

// The number of scores, over heads and queries. A causal mask leaves half of them, a window leaves a band; blocks on the edge count wholly.
double keys_per_query(const AttentionShape& shape, double block) {
  const auto queries = static_cast<double>(shape.queries), keys = static_cast<double>(shape.keys);
  double seen = keys;
  if (shape.causal) seen = std::min(keys, std::max(keys - queries / 2, keys / 2) + block / 2);
  if (shape.window > 0) seen = std::min(seen, static_cast<double>(shape.window) + block / 2);
  return round_up(seen, 32);
}

}  // namespace

// A multiprocessor computes one block of a head's queries at a time, over the keys that they see: two products in the forward, five in the
// backward, because it computes the scores again.
Estimate attention_time(const Operation& operation, const CardRates& card) {
  const AttentionShape& shape = operation.attention;
  const AttentionConstants& c = card.attention[operation.precision];
  const bool backward = shape.pass != Pass::forward;
  const double cycle_ns = 1e9 / card.clock_hz;
  const double floor_ns = shape.prefill ? c.prefill_cycles * cycle_ns : card.launch_ns * static_cast<double>(operation.launches);
  const auto head_dim = static_cast<double>(shape.head_dim);
  const double value_dim = shape.value_dim > 0 ? static_cast<double>(shape.value_dim) : head_dim;
  const double width = std::max(head_dim, value_dim);
  const double padded = padded_width(width, card.capability);
  const double block = width <= 128 ? 128 : 64;
  const double heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  const double waves = heads * std::ceil(static_cast<double>(shape.queries) / block) / card.multiprocessors;
  if (waves == 0 || shape.keys == 0 || width == 0) return {floor_ns, Bound::launch};
  const double taken = (1 - c.wave_smoothing) * std::ceil(waves) + c.wave_smoothing * std::max(waves, 1.0);

  const double wide = width > 256 ? c.wide_efficiency * c.wide_efficiency : width > 128 ? c.wide_efficiency : 1;
  const AttentionKernelConstants& kernel = c.kernel[shape.kernel];
  const double efficiency = (backward ? c.backward_efficiency * kernel.backward_rate : c.efficiency * kernel.rate) * wide;
  const double products = backward ? 5 : 2;  // and the softmax half as many times
  const double key_ns =
      1e9 * products * 2 * block * padded / (card.sustained_flop_per_s[operation.precision] / card.multiprocessors * efficiency) +
      products / 2 * c.softmax_cycles * kernel.softmax * block / 128 * cycle_ns;
  const double compute_ns = taken * (keys_per_query(shape, block) * key_ns + c.block_cycles * cycle_ns);

  // Queries and the result, keys and values; backward also reads and writes the gradient of each.
  const double element = operation.element_bytes;
  const double kv_heads = static_cast<double>(shape.batch) * static_cast<double>(std::max<int64_t>(1, shape.kv_heads));
  const double tensors =
      (heads * static_cast<double>(shape.queries) + kv_heads * static_cast<double>(shape.keys)) * (head_dim + value_dim) * element;
  const double moved = tensors * (backward ? 2 : 1);
  const double warm = std::clamp(2 - 2 * moved / card.l2_bytes, 0.0, 1.0);
  const double memory_ns =
      moved * (warm * cycle_ns / (c.l2_bytes_per_cycle * card.multiprocessors) + (1 - warm) * 1e9 / card.dram_bytes_per_s);
  const double larger = std::max(compute_ns, memory_ns);
  const Bound bound = floor_ns > larger                           ? Bound::launch
                      : memory_ns > compute_ns                    ? Bound::memory
                      : waves < card.tail_fill * std::ceil(waves) ? Bound::tail
                                                                  : Bound::compute;
  return {floor_ns + larger + (shape.prefill ? c.prefill_passes * memory_ns : 0), bound};
}

}  // namespace gpucast
