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

HeadWidth head_width(double width) {
  return width <= 64    ? HeadWidth::narrow
         : width <= 128 ? HeadWidth::middle
         : width <= 192 ? HeadWidth::wide
         : width <= 256 ? HeadWidth::wider
                        : HeadWidth::widest;
}

struct Keys {
  double mean, most;  // of the blocks of queries
};

// The keys that a block of `together` queries sees. A causal mask leaves half of them. The first query's window and the last one's are a
// block apart, and the first blocks see less than a window. Blocks on an edge count wholly. `outside`: the part of the other keys that is
// computed, too. `least`: the keys that a block computes at once.
Keys keys_of_block(const AttentionShape& shape, double together, double outside, double least) {
  const auto queries = static_cast<double>(shape.queries), keys = static_cast<double>(shape.keys),
             window = static_cast<double>(shape.window);
  double mean = shape.causal ? std::min(keys, std::max(keys - queries / 2, keys / 2) + together / 2) : keys;
  double most = keys;
  if (shape.window > 0 && window + together < keys) {
    const double before = shape.causal && queries == keys ? (window / together + 1) * window / 2 / std::ceil(queries / together) : 0;
    const double seen = std::min(mean, window + together - before);
    mean = seen + outside * (mean - seen);
    most = window + together + outside * (keys - window - together);
  }
  return {std::max(round_up(mean, 32), least), std::max(round_up(most, 32), least)};
}

// The constants of a kernel: PyTorch's own, or others.
struct Kernel {
  double efficiency, softmax_cycles, block_cycles, alone, wave_smoothing, l2_bytes_per_cycle, l2_full, l2_none, dram_fraction, overlap;
};

// Kernels for wider heads have less space for their blocks.
Kernel own_kernel(const AttentionConstants& c, AttentionKernel which, bool backward, double width) {
  const OwnAttentionConstants& own = c.own;
  const AttentionKernelConstants& kernel = c.kernel[which];
  const double wide = width > 256 ? own.wide_efficiency * own.wide_efficiency : width > 128 ? own.wide_efficiency : 1;
  return {.efficiency = (backward ? kernel.backward_rate : kernel.rate) * wide,
          .softmax_cycles = kernel.softmax_cycles,
          .block_cycles = own.block_cycles,
          .alone = 0,
          .wave_smoothing = own.wave_smoothing,
          .l2_bytes_per_cycle = own.l2_bytes_per_cycle,
          .l2_full = 0.5,
          .l2_none = 1,
          .dram_fraction = 1,
          .overlap = 0};
}

Kernel other_kernel(const AttentionConstants& c, const AttentionShape& shape, bool backward, HeadWidth width) {
  double of_width = c.width[width].efficiency;
  if (shape.prefill && width == HeadWidth::wide) of_width *= c.prefill_wide_efficiency;
  if (shape.prefill && shape.window > 0) of_width *= c.width[width].window_efficiency;
  return {.efficiency = (backward ? c.backward_efficiency : c.efficiency) * of_width,
          .softmax_cycles = c.softmax_cycles,
          .block_cycles = c.block_cycles,
          .alone = c.width[width].alone,
          .wave_smoothing = c.wave_smoothing,
          .l2_bytes_per_cycle = c.l2_bytes_per_cycle,
          .l2_full = c.l2_full,
          .l2_none = c.l2_none,
          .dram_fraction = c.dram_fraction,
          .overlap = c.overlap};
}

// A serving framework's cache has pages of this many keys, which Hopper's kernels read as a whole.
constexpr double kPageKeys = 64;

// The part of the kernels that put the queries of all heads that share keys into one block. Some do so for a single query only, as all
// kernels do that generate one token after another.
double packed_part(const AttentionShape& shape, const AttentionConstants& c, HeadWidth width) {
  if (shape.kernel != AttentionKernel::any || shape.kv_heads == 0) return 0;
  if (shape.queries == 1 && !shape.prefill) return 1;
  const double packed = c.width[width].packed;
  return shape.queries == 1 ? std::max(packed, c.packed_single) : packed;
}

// As Ada, GeForce Ampere and GeForce Blackwell have it in a multiprocessor; A100, Hopper and B200 have more.
constexpr int kLittleSharedBytes = 100 << 10;

}  // namespace

// A multiprocessor computes one block of a head's queries at a time, over the keys that they see: two products in the forward, five in the
// backward, because it computes the scores again. A kernel is never faster than its longest block alone.
Estimate attention_time(const Operation& operation, const CardRates& card) {
  const AttentionShape& shape = operation.attention;
  const AttentionConstants& c = card.attention[operation.precision];
  const bool backward = shape.pass != Pass::forward;
  const double cycle_ns = 1e9 / card.clock_hz;
  const auto head_dim = static_cast<double>(shape.head_dim);
  const double value_dim = shape.value_dim > 0 ? static_cast<double>(shape.value_dim) : head_dim;
  const double width = std::max(head_dim, value_dim);
  const HeadWidth class_of_width = head_width(width);
  const HeadWidthConstants& of_width = c.width[class_of_width];
  const bool in_window = shape.window > 0;
  const double floor_ns = shape.prefill ? of_width.cycles * (in_window ? of_width.window_cycles : 1) * cycle_ns
                                        : card.launch_ns * static_cast<double>(operation.launches);
  const bool own = shape.kernel != AttentionKernel::any;
  // Hopper and data centre Blackwell have more shared memory than GeForce Blackwell.
  const bool wide_blocks = card.capability >= 90 && card.capability < 120 && !own;
  const double padded = padded_width(width, own || wide_blocks ? card.capability : std::min(card.capability, 89));
  const Kernel kernel = own ? own_kernel(c, shape.kernel, backward, width) : other_kernel(c, shape, backward, class_of_width);
  const bool small_blocks = !own && card.occupancy.shared_bytes == kLittleSharedBytes;
  const double block = wide_blocks || (width <= 128 && !small_blocks) ? 128 : 64;
  const auto queries = static_cast<double>(shape.queries), keys = static_cast<double>(shape.keys);
  const auto batch = static_cast<double>(shape.batch);
  const double heads = batch * static_cast<double>(shape.heads);
  const double kv_heads = batch * static_cast<double>(std::max<int64_t>(1, shape.kv_heads));
  double blocks = heads * std::ceil(queries / block), together = block;
  if (const double packed = kv_heads * std::ceil(queries * (heads / kv_heads) / block); packed < blocks) {
    const double part = packed_part(shape, c, class_of_width);
    blocks = part * packed + (1 - part) * blocks;
    together = block * (part * kv_heads / heads + 1 - part);
  }
  const double waves = blocks / card.multiprocessors;
  if (waves == 0 || keys == 0 || width == 0) return {floor_ns, Bound::launch};
  const double taken = (1 - kernel.wave_smoothing) * std::ceil(waves) + kernel.wave_smoothing * std::max(waves, 1.0);
  const Keys seen = keys_of_block(shape, together, shape.prefill ? of_width.window_outside : 0, own || small_blocks ? 32 : 64);

  const double products = backward ? 5 : 2;  // and the softmax half as many times
  const double key_ns =
      1e9 * products * 2 * block * padded / (card.sustained_flop_per_s[operation.precision] / card.multiprocessors * kernel.efficiency) +
      products / 2 * kernel.softmax_cycles * block / 128 * cycle_ns;
  const double block_ns = kernel.block_cycles * cycle_ns;
  const double compute_ns = std::max(taken * (seen.mean * key_ns + block_ns), kernel.alone * seen.most * key_ns + block_ns);

  // Queries and the result, keys and values; backward also reads and writes the gradient of each.
  const double element = operation.element_bytes;
  const auto bytes = [&](double of_keys) { return (heads * queries + kv_heads * of_keys) * (head_dim + value_dim) * element; };
  const double moved = bytes(shape.prefill && card.capability == 90 ? round_up(keys, kPageKeys) : keys) * (backward ? 2 : 1);
  const double warm = std::clamp((kernel.l2_none - moved / card.l2_bytes) / (kernel.l2_none - kernel.l2_full), 0.0, 1.0);
  const double ns_a_byte = warm * cycle_ns / (kernel.l2_bytes_per_cycle * card.multiprocessors) +
                           (1 - warm) * 1e9 / (card.dram_bytes_per_s * kernel.dram_fraction);
  const double memory_ns = moved * ns_a_byte;
  const double both_ns = together_ns(compute_ns, memory_ns, kernel.overlap);
  const Bound bound = floor_ns > both_ns                          ? Bound::launch
                      : memory_ns > compute_ns                    ? Bound::memory
                      : waves < card.tail_fill * std::ceil(waves) ? Bound::tail
                                                                  : Bound::compute;
  double others_ns = own && backward ? c.own.backward_passes * bytes(keys) * ns_a_byte : 0;
  if (shape.prefill) {  // its other kernels rotate queries and keys, and write the cache
    others_ns = (of_width.passes * bytes(0) + of_width.cache_passes * (bytes(keys) - bytes(0))) * (in_window ? of_width.window_passes : 1) *
                    ns_a_byte +
                batch * queries * c.prefill_token_cycles * cycle_ns;
  }
  return {floor_ns + both_ns + others_ns, bound};
}

}  // namespace gpucast
