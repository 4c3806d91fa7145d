#include "src/pack/constants.h"

#include "pack_json.h"
#include "src/base/constants_file.h"

namespace gpucast::pack {

PackConstants read_pack_constants(const std::string& file) {
  const ConstantSection section("pack", kPackJson, file);
  PackConstants out;
  const auto meeting = [&](const char* name) { return section.number("slices_since_volta", name); };
  out.slices_since_volta = {.meeting = meeting("meeting"),
                            .both_full = meeting("both_full"),
                            .memory = meeting("memory"),
                            .together = meeting("together"),
                            .typical_memory = meeting("typical_memory"),
                            .low = meeting("low"),
                            .high = meeting("high")};
  const auto slices = [&](const char* name) { return section.number("slices_until_pascal", name); };
  out.slices_until_pascal = {.cost = slices("cost"),
                             .slice_ns = slices("slice_ns"),
                             .least_step_ns = slices("least_step_ns"),
                             .low = slices("low"),
                             .high = slices("high")};
  const auto mps = [&](const char* name) { return section.number("mps", name); };
  out.mps = {.cost = mps("cost"),
             .wave_ends_turn = mps("wave_ends_turn"),
             .launches_ns = mps("launches_ns"),
             .typical_turn_ns = mps("typical_turn_ns"),
             .low = mps("low"),
             .high = mps("high")};
  out.mps_limits_least_loss = section.number("mps_limits", "least_loss");
  out.mig_usable_memory = section.number("mig", "usable_memory");
  out.least_gain = section.number("choice", "least_gain");
  out.good_gain = section.number("choice", "good_gain");
  out.most_slice_slowdown = section.number("choice", "most_slice_slowdown");
  return out;
}

const PackConstants& pack_constants() {
  static const PackConstants built_in = read_pack_constants("");
  return built_in;
}

}  // namespace gpucast::pack
