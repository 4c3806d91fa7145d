#include "src/time/power.h"

#include <algorithm>
#include <cmath>

#include "power_json.h"
#include "src/base/constants_file.h"

namespace gpucast {
namespace {

constexpr int kVolta = 7;                // compute capability
constexpr int kLeastStackedBits = 1024;  // one stack of HBM has a bus of 1024 bits; the widest without has 512

// The limit that the board came with: a lower one slows the card down, and changes nothing else.
double board_power_w(const Gpu& gpu) { return gpu.board_power_w > 0 ? gpu.board_power_w : gpu.power_w; }

// The power that the card may draw. Of a MIG slice, its part of it.
double most_power_w(const Gpu& gpu) { return std::min(gpu.power_w, board_power_w(gpu)); }

}  // namespace

PowerConstants read_power_constants(const std::string& file) {
  const ConstantSection section("power", kPowerJson, file);
  return {.idle_stacked = section.number("idle", "stacked"),
          .idle_other = section.number("idle", "other"),
          .busy = section.number("work", "busy"),
          .tensor = section.number("work", "tensor"),
          .plain = section.number("work", "plain"),
          .memory = section.number("work", "memory"),
          .before_volta = section.number("work", "before_volta"),
          .most = section.number("work", "most"),
          .low = section.number("interval", "low"),
          .high = section.number("interval", "high"),
          .limited_low = section.number("interval", "limited_low")};
}

const PowerConstants& power_constants() {
  static const PowerConstants built_in = read_power_constants("");
  return built_in;
}

void add_work(const Operation& operation, const Duration& duration, const CardRates& card, double times, CardWork* work) {
  const double peak = card.peak_flop_per_s[operation.precision];
  if (makes_products(operation.kind) && peak > 0) {
    const double ns = times * std::min(operation.flops / peak * 1e9, duration.expected_ns);
    (card.tensor_cores[operation.precision] ? work->tensor_ns : work->plain_ns) += ns;
  }
  if (operation.kind == OperationKind::collective || card.peak_bytes_per_s <= 0) return;
  const auto bytes = static_cast<double>(operation.bytes_read + operation.bytes_written);
  work->memory_ns += times * std::min(bytes / card.peak_bytes_per_s * 1e9, duration.expected_ns);
}

CardUse card_use(const CardWork& work, double step_ns) {
  if (step_ns <= 0) return {};
  const auto share = [&](double ns) { return std::clamp(ns / step_ns, 0.0, 1.0); };
  return {share(work.busy_ns), share(work.tensor_ns), share(work.plain_ns), share(work.memory_ns)};
}

double idle_power_w(const Gpu& gpu, const PowerConstants& constants) {
  const double share = gpu.memory_bus_width_bits >= kLeastStackedBits ? constants.idle_stacked : constants.idle_other;
  return std::min(share * board_power_w(gpu), most_power_w(gpu));
}

PowerRange card_power(const Gpu& gpu, const CardUse& use, const PowerConstants& constants, bool* limited) {
  const double idle_w = idle_power_w(gpu, constants), most_w = most_power_w(gpu);
  const double work = constants.busy * use.busy_share + constants.tensor * use.tensor_share + constants.plain * use.plain_share +
                      constants.memory * use.memory_share;
  const double part = gpu.compute_major < kVolta ? constants.before_volta : 1;
  const double wanted_w = idle_w + part * work * board_power_w(gpu), allowed_w = std::max(idle_w, constants.most * most_w);
  if (limited != nullptr) *limited = wanted_w > allowed_w;
  const double expected_w = std::min(wanted_w, allowed_w);
  // A card that would draw far more than its limit certainly draws nearly that: its own interval begins above.
  return {std::min(wanted_w * constants.low, expected_w * constants.limited_low), expected_w,
          std::clamp(wanted_w * constants.high, expected_w, most_w)};
}

CardPower power_of_step(const Gpu& gpu, const CardWork& work, const TimeRange& step, bool gpu_bound, const PowerConstants& constants) {
  CardPower out;
  out.use = card_use(work, step.expected_ns);
  const PowerRange known = card_power(gpu, out.use, constants, &out.limited);
  out.idle_power_w = idle_power_w(gpu, constants);
  if (known.expected_w <= 0 || step.expected_ns <= 0) return out;
  const auto power_at = [&](double ns) {
    CardWork of_step = work;
    if (gpu_bound) of_step.busy_ns *= ns / step.expected_ns;
    return card_power(gpu, card_use(of_step, ns), constants).expected_w / known.expected_w;
  };
  const double slow = power_at(step.high_ns), fast = power_at(step.low_ns);
  const auto away = [](double a, double b) { return std::exp(std::hypot(std::log(a), std::log(b))); };
  const double low = known.low_w / known.expected_w, high = known.high_w / known.expected_w;
  out.power = {std::max(known.expected_w / away(low, slow), std::min(known.low_w, out.idle_power_w)), known.expected_w,
               std::min(known.expected_w * away(high, fast), most_power_w(gpu))};
  const double expected_j = known.expected_w * step.expected_ns * 1e-9;
  out.energy = {expected_j / away(low, fast * step.low_ns / step.expected_ns), expected_j,
                expected_j * away(high, slow * step.high_ns / step.expected_ns)};
  return out;
}

}  // namespace gpucast
