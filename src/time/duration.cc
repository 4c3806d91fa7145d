#include "src/time/duration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "gpucast/error.h"
#include "src/occupancy/occupancy_card.h"
#include "src/time/card_rates.h"
#include "src/time/constants.h"
#include "src/time/correction.h"
#include "src/time/kinds.h"

namespace gpucast {
namespace {

// Names of constants of one width of heads begin with these.
constexpr By<HeadWidth, const char*> kHeadWidthPrefixes = {{"narrow_", "", "wide_", "wider_", "widest_"}};

// The datasheet's rate for a precision, and the unit that it belongs to. A precision without its own unit runs in another one.
struct Peak {
  double flop_per_s = 0;
  std::string unit;
};

Peak peak(const Gpu& gpu, Precision precision) {
  const auto first = [&](std::initializer_list<const char*> names) -> Peak {
    for (const char* name : names) {
      const auto found = gpu.peak_flop_per_s.find(name);
      if (found != gpu.peak_flop_per_s.end()) return {found->second, name};
    }
    return {};
  };
  switch (precision) {
    case Precision::fp64: {
      // Half the fp32 rate on cards made for fp64 (capability X.0), a 32nd or 64th on others.
      Peak fp32 = first({"fp32"});
      fp32.flop_per_s *= gpu.compute_minor == 0 ? 0.5 : gpu.compute_major >= 8 ? 1.0 / 64 : 1.0 / 32;
      return fp32;
    }
    case Precision::tf32:
      return first({"tf32", "fp32"});
    case Precision::fp16:
      return first({"fp16", "fp32"});
    case Precision::bf16:
      return first({"bf16", "fp32"});
    case Precision::fp8:
      return first({"fp8", "fp16", "fp32"});
    case Precision::int8:
      return first({"int8", "fp32"});
    default:
      return first({"fp32"});
  }
}

bool known(double value) { return std::isfinite(value) && value > 0; }

// "": all there.
std::string missing_rate(const Gpu& gpu) {
  if (!known(gpu.bandwidth_bytes_per_s)) return "memory bandwidth";
  if (!gpu.peak_flop_per_s.contains("fp32")) return "fp32 rate";
  for (const auto& [type, rate] : gpu.peak_flop_per_s)
    if (!known(rate)) return type + " rate";
  return gpu.multiprocessors > 0 && gpu.clock_khz > 0 ? "" : "number of multiprocessors or clock";
}

Interval attention_interval(const Operation& operation, const CardRates& card) {
  const bool in_window = operation.attention.window > 0;
  if (operation.attention.prefill) return (in_window ? card.prefill_window_interval : card.prefill_interval)[operation.precision];
  return (in_window ? card.window_interval : card.interval[operation.kind])[operation.precision];
}

}  // namespace

bool has_rates(const Gpu& gpu) { return missing_rate(gpu).empty(); }

CardRates card_rates(const Gpu& gpu, const std::string& constants_json) {
  if (const std::string missing = missing_rate(gpu); !missing.empty()) {
    throw Error(fmt::format("the time on '{}' cannot be predicted: its {} is not known", gpu.id.empty() ? gpu.name : gpu.id, missing),
                "the device table", "name a card that `gpucast gpus` lists with its rates");
  }
  const Constants constants(gpu, constants_json);
  CardRates card;
  card.capability = gpu.compute_major * 10 + gpu.compute_minor;
  card.own_constants = constants.has_card_layer();
  card.multiprocessors = gpu.multiprocessors;
  card.clock_hz = gpu.clock_khz * 1e3;
  card.l2_bytes = static_cast<double>(gpu.l2_bytes);
  card.peak_bytes_per_s = gpu.bandwidth_bytes_per_s;
  card.dram_bytes_per_s = gpu.bandwidth_bytes_per_s * constants.rate("dram_fraction");
  card.l2_bytes_per_s = card.multiprocessors * card.clock_hz * constants.rate("l2_bytes_per_clock");
  card.l2_copies = constants.rate("l2_copies");
  card.l2_full = constants.rate("l2_full");
  card.l2_none = constants.rate("l2_none");
  card.at_work_bytes = constants.rate("at_work_bytes");
  card.tail_fill = constants.rate("tail_fill");
  card.unwritten_share = constants.rate("unwritten_share");
  card.threads = gpu.max_threads_per_multiprocessor > 0 ? gpu.max_threads_per_multiprocessor : 2048;
  card.link_bytes_per_s = constants.rate("link_bytes_per_s");
  card.network = read_network_constants(gpu, constants_json);
  card.links = usual_links(gpu);
  card.addresses_peers = addresses_peers(gpu);
  card.launch_ns = constants.rate("launch_ns");
  card.event_ns = constants.rate("event_ns");
  const std::string own = card.own_constants ? "" : "_datasheet";
  card.step_interval = {constants.rate("step_low" + own) * gpu.spread_low, constants.rate("step_high" + own) * gpu.spread_high};
  card.guessed_interval = {constants.rate("guessed_low"), constants.rate("guessed_high")};
  card.unknown_interval = {constants.rate("unknown_low"), constants.rate("unknown_high")};
  for (size_t p = 0; p < kPrecisionCount; ++p) {
    const auto precision = static_cast<Precision>(p);
    const Peak found = peak(gpu, precision);
    card.peak_flop_per_s[precision] = found.flop_per_s;
    card.sustained_flop_per_s[precision] = found.flop_per_s * constants.rate(found.unit + "_fraction");
    // A card with a low power limit cannot keep its clock: its watts allow fewer FLOP/s than its peak.
    if (gpu.power_w > 0) {
      const double bought =
          gpu.power_w * constants.rate(found.unit + "_flop_per_joule") * (found.flop_per_s / gpu.peak_flop_per_s.at(found.unit));
      card.sustained_flop_per_s[precision] = std::min(card.sustained_flop_per_s[precision], bought);
    }
    for (size_t k = 0; k < kKindCount; ++k) {
      const auto kind = static_cast<OperationKind>(k);
      card.interval[kind][precision] = {constants.of_operation(kind, precision, "low" + own),
                                        constants.of_operation(kind, precision, "high" + own)};
    }
    const auto of_attention_rows = [&](const char* rows) -> Interval {
      return {constants.of_operation(OperationKind::attention, precision, fmt::format("{}low{}", rows, own)),
              constants.of_operation(OperationKind::attention, precision, fmt::format("{}high{}", rows, own))};
    };
    card.window_interval[precision] = of_attention_rows("window_");
    card.prefill_interval[precision] = of_attention_rows("prefill_");
    card.prefill_window_interval[precision] = of_attention_rows("prefill_window_");
    // A precision uses the kernels of the unit that it runs in.
    const Precision unit = precision_from_name(found.unit);
    GemmConstants& gemm = card.gemm[precision];
    const auto of_gemm = [&](const char* name) { return constants.of_operation(OperationKind::gemm, unit, name); };
    gemm.efficiency = of_gemm("efficiency");
    gemm.k_overhead = of_gemm("k_overhead");
    gemm.edge = of_gemm("edge");
    gemm.least_k_cycles = of_gemm("least_k_cycles");
    gemm.feed_bytes_per_cycle = of_gemm("feed_bytes_per_cycle");
    gemm.largest_tile = of_gemm("largest_tile");
    gemm.transposed = of_gemm("transposed");
    gemm.tile_cycles = of_gemm("tile_cycles");
    gemm.later_overhead = of_gemm("later_overhead");
    gemm.latency_cycles = of_gemm("latency_cycles");
    gemm.batched_latency_cycles = of_gemm("batched_latency_cycles");
    gemm.resident = of_gemm("resident");
    gemm.store_bytes_per_cycle = of_gemm("store_bytes_per_cycle");
    gemm.dram_fraction = of_gemm("dram_fraction");
    gemm.split_cycles = of_gemm("split_cycles");
    gemm.floor_cycles = of_gemm("floor_cycles");
    gemm.wave_smoothing = of_gemm("wave_smoothing");
    gemm.overlap = of_gemm("overlap");
    gemm.l2_bytes_per_cycle = of_gemm("l2_bytes_per_cycle");
    gemm.warm_inputs = of_gemm("warm_inputs");
    gemm.warm_weights = of_gemm("warm_weights");
    const double most_throttle = of_gemm("most_throttle");
    gemm.throttle = gpu.power_w > 0 ? std::min(of_gemm("throttle") * gpu.peak_flop_per_s.at(found.unit) / 1e12 / gpu.power_w, most_throttle)
                                    : most_throttle / 2;
    gemm.throttle_ns = of_gemm("throttle_ns");
    gemm.unaligned_flop_per_cycle = of_gemm("unaligned_flop_per_cycle");
    gemm.thin_passes = of_gemm("thin_passes");
    gemm.thin = of_gemm("thin");
    gemm.least_part = of_gemm("least_part");
    gemm.whole_products = of_gemm("whole_products");
    gemm.whole_k = of_gemm("whole_k");
    gemm.short_k = of_gemm("short_k");
    gemm.batched_tile_m = of_gemm("batched_tile_m");
    gemm.batched_tile_n = of_gemm("batched_tile_n");
    card.tensor_cores[precision] = found.unit != "fp32";
    const auto of_recurrent = [&](const char* name) { return constants.of_operation(OperationKind::recurrent, precision, name); };
    card.recurrent[precision] = {of_recurrent("data_gradient"), of_recurrent("weight_gradient"), of_recurrent("sum_bytes_per_cycle")};
    AttentionConstants& attention = card.attention[precision];
    const auto of_attention = [&](const char* name) { return constants.of_operation(OperationKind::attention, unit, name); };
    attention.efficiency = of_attention("efficiency");
    attention.kernel[AttentionKernel::flash] = {of_attention("flash_rate"), of_attention("flash_backward_rate"),
                                                of_attention("flash_softmax_cycles")};
    attention.kernel[AttentionKernel::efficient] = {of_attention("efficient_rate"), of_attention("efficient_backward_rate"),
                                                    of_attention("efficient_softmax_cycles")};
    attention.kernel[AttentionKernel::cudnn] = {of_attention("cudnn_rate"), of_attention("cudnn_backward_rate"),
                                                of_attention("cudnn_softmax_cycles")};
    attention.own = {of_attention("own_wide_efficiency"), of_attention("own_block_cycles"), of_attention("own_wave_smoothing"),
                     of_attention("own_l2_bytes_per_cycle"), of_attention("own_backward_passes")};
    attention.prefill_wide_efficiency = of_attention("prefill_wide_efficiency");
    attention.backward_efficiency = of_attention("backward_efficiency");
    for (size_t w = 0; w < static_cast<size_t>(HeadWidth::count_); ++w) {
      const auto width = static_cast<HeadWidth>(w);
      const auto of_width = [&](const char* name) {
        return constants.of_operation(OperationKind::attention, unit, std::string(kHeadWidthPrefixes[width]) + name);
      };
      attention.width[width] = {.efficiency = width == HeadWidth::middle ? 1 : of_width("efficiency"),
                                .alone = of_width("alone"),
                                .packed = of_width("packed"),
                                .cycles = of_width("prefill_cycles"),
                                .passes = of_width("prefill_passes"),
                                .cache_passes = of_width("prefill_cache_passes"),
                                .window_efficiency = of_width("window_efficiency"),
                                .window_cycles = of_width("window_cycles"),
                                .window_passes = of_width("window_passes"),
                                .window_outside = of_width("window_outside")};
    }
    attention.overlap = of_attention("overlap");
    attention.dram_fraction = of_attention("dram_fraction");
    attention.softmax_cycles = of_attention("softmax_cycles");
    attention.block_cycles = of_attention("block_cycles");
    attention.packed_single = of_attention("packed_single");
    attention.l2_full = of_attention("l2_full");
    attention.l2_none = of_attention("l2_none");
    attention.prefill_token_cycles = of_attention("prefill_token_cycles");
    attention.l2_bytes_per_cycle = of_attention("l2_bytes_per_cycle");
    attention.wave_smoothing = of_attention("wave_smoothing");
  }
  for (size_t k = 0; k < kKindCount; ++k) {
    const auto kind = static_cast<OperationKind>(k);
    if (kind == OperationKind::gemm || kind == OperationKind::attention) continue;
    const auto of = [&](const char* name) { return constants.of_operation(kind, Precision::fp32, name); };
    const double floor_ns = of("floor_ns");
    card.bytes[kind] = {of("dram_fraction"), of("passes"), floor_ns, 1, floor_ns};
  }
  card.recurrent_efficiency = constants.of_operation(OperationKind::recurrent, Precision::fp32, "efficiency");
  read_row_constants(constants, &card);
  read_convolution_constants(constants, &card);
  read_counted_constants(constants, &card);
  if (!constants.changes_products()) card.corrections = corrections_of(gpu);
  card.correction_share = constants.rate("correction_share");
  if (find_capability_rules(gpu.compute_major, gpu.compute_minor) != nullptr) card.occupancy = occupancy_card(gpu);
  return card;
}

Duration operation_duration(const Operation& operation, const CardRates& card) {
  const bool counted = operation.counted.blocks > 0;
  Estimate estimate = [&] {
    if (counted) return counted_time(operation, card);
    switch (operation.kind) {
      case OperationKind::gemm:
        return gemm_time(operation, card);
      case OperationKind::convolution:
        return convolution_time(operation, card);
      case OperationKind::attention:
        return attention_time(operation, card);
      case OperationKind::normalization:
        return normalization_time(operation, card);
      case OperationKind::elementwise:
        return elementwise_time(operation, card);
      case OperationKind::indexing:
        return indexing_time(operation, card);
      case OperationKind::copy:
        return copy_time(operation, card);
      case OperationKind::collective:
        return collective_time(operation, card);
      case OperationKind::recurrent:
        return recurrent_time(operation, card);
      default:  // reduction, memset, optimizer, unknown
        return time_by_bytes(operation, card);
    }
  }();
  Duration duration;
  const double bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  duration.ideal_ns = 1e9 * std::max(operation.flops / card.peak_flop_per_s[operation.precision], bytes / card.peak_bytes_per_s);
  Corrected correction;
  if (!counted && !card.corrections.empty() && (operation.kind == OperationKind::gemm || operation.kind == OperationKind::attention))
    correction = corrected(card.corrections, operation, estimate.ns,
                           shape_ideal_ns(operation, card.peak_flop_per_s[operation.precision], card.peak_bytes_per_s));
  if (correction.by != nullptr) estimate.ns *= std::pow(correction.factor, card.correction_share);
  duration.expected_ns = estimate.ns;
  duration.bound = estimate.bound;
  const Interval interval = correction.by != nullptr                      ? correction.by->interval
                            : counted                                     ? card.interval[OperationKind::compiled][operation.precision]
                            : operation.kind == OperationKind::collective ? collective_interval(operation, card)
                            : operation.kind == OperationKind::attention  ? attention_interval(operation, card)
                                                                          : card.interval[operation.kind][operation.precision];
  duration.low_ns = estimate.ns * interval.low;
  duration.high_ns = estimate.ns * interval.high;
  return duration;
}

bool sweeps_l2(const Operation& operation, const CardRates& card) {
  return operation.bytes_read == 0 && card.l2_bytes > 0 && static_cast<double>(operation.bytes_written) >= card.l2_bytes;
}

double after_sweep_ns(const Operation& operation, const Duration& duration, const CardRates& card) {
  const bool counted = operation.counted.blocks > 0;
  const BytesConstants& kind = card.bytes[operation.kind];
  // A fill leaves as many unwritten bytes in L2 as were there before.
  if (!counted && is_fill(operation)) {
    const double fraction = (kind.dram_fraction > 0 ? kind.dram_fraction : 1) * kind.fill_fraction;
    const double bytes_ns = 1e9 * static_cast<double>(operation.bytes_written) / (card.dram_bytes_per_s * fraction);
    return std::max(0.0, kind.fill_floor_ns + bytes_ns - duration.expected_ns);
  }
  const double floor_ns = counted ? card.counted.floor_ns : kind.floor_ns;
  const double fraction = counted ? card.counted.dram_fraction : kind.dram_fraction > 0 ? kind.dram_fraction : 1;
  const double bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  const double ns_a_byte = 1e9 / (card.dram_bytes_per_s * fraction);
  return std::max(0.0, floor_ns + bytes * ns_a_byte - duration.expected_ns) +
         card.unwritten_share * std::min(bytes, card.l2_bytes) * ns_a_byte;
}

}  // namespace gpucast
