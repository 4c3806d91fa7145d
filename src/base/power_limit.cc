// A card under a lower power limit.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpucast/error.h"
#include "power_limit_json.h"
#include "src/base/gpu_variant.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

// How fast runs are at a share of the card's power limit, against the full limit.
struct LimitedSpeed {
  double share = 1, slowest = 1, speed = 1, fastest = 1;
};

struct PowerLaw {
  std::vector<LimitedSpeed> points;  // by share
  std::string source;
};

const PowerLaw& power_law() {
  static const PowerLaw law = [] {
    const Json file = Json::parse(kPower_limitJson);
    PowerLaw out;
    out.source = file["source"].get<std::string>();
    for (const Json& point : file["points"])
      out.points.push_back(
          {point["share"].get<double>(), point["slowest"].get<double>(), point["speed"].get<double>(), point["fastest"].get<double>()});
    return out;
  }();
  return law;
}

LimitedSpeed limited_speed(double share) {
  const std::vector<LimitedSpeed>& points = power_law().points;
  const auto above = std::ranges::find_if(points, [&](const LimitedSpeed& point) { return point.share >= share; });
  if (above == points.begin()) return points.front();
  const LimitedSpeed& low = *std::prev(above);
  const double part = (share - low.share) / (above->share - low.share);
  return {share, std::lerp(low.slowest, above->slowest, part), std::lerp(low.speed, above->speed, part),
          std::lerp(low.fastest, above->fastest, part)};
}

}  // namespace

Gpu with_power_limit(const Gpu& gpu, double watts, const std::string& typed) {
  const double least_share = power_law().points.front().share, share = watts / gpu.power_w;
  if (gpu.power_w <= 0) throw Error(fmt::format("the power limit of {} is not known", gpu.id), typed, "name the card without a limit");
  if (share > 1)
    throw Error(fmt::format("{:g} W is above the {:g} W of {}", watts, gpu.power_w, gpu.id), typed,
                fmt::format("name at most {:g} W: how much a card gains above its limit was not measured", gpu.power_w));
  // Rounded down, a share of exactly the least is still in the law.
  if (share < least_share - 1e-9)
    throw Error(fmt::format("{:g} W is {:.0f} % of the {:g} W of {}", watts, share * 100, gpu.power_w, gpu.id), typed,
                fmt::format("name at least {:.0f} W: runs below {:.0f} % of the limit were not measured",
                            std::ceil(gpu.power_w * least_share), least_share * 100));
  const LimitedSpeed at = limited_speed(share);
  Gpu out = gpu;
  out.id = fmt::format("{}@{:g}W", gpu.id, watts);
  if (out.constants_of.empty()) out.constants_of = gpu.id;
  out.clock_khz = static_cast<int>(std::lround(gpu.clock_khz * at.speed));
  for (auto& [type, flop_per_s] : out.peak_flop_per_s) flop_per_s *= at.speed;
  out.power_w = watts;
  out.board_power_w = gpu.power_w;
  out.spread_low *= at.speed / at.fastest;
  out.spread_high *= at.speed / at.slowest;
  out.estimated.emplace_back("clock_khz");
  out.sources.push_back(fmt::format("clock and rates at {:g} W: an estimate, {:.3f} of those at {:g} W ({:.3f} to {:.3f}); {}", watts,
                                    at.speed, gpu.power_w, at.slowest, at.fastest, power_law().source));
  return out;
}

}  // namespace gpucast
