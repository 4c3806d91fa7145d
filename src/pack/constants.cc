#include "src/pack/constants.h"

#include "pack_json.h"
#include "src/base/constants_file.h"

namespace gpucast::pack {

PackConstants read_pack_constants(const std::string& file) {
  const ConstantSection section("pack", kPackJson, file);
  PackConstants out;
  const auto shared = [&](const char* name) { return section.number("slices_since_volta", name); };
  out.slices_since_volta = {.meeting = shared("meeting"),
                            .both_full = shared("both_full"),
                            .memory = shared("memory"),
                            .typical_memory = shared("typical_memory"),
                            .together = shared("together"),
                            .nvml_busy = shared("nvml_busy"),
                            .low = shared("low"),
                            .high = shared("high")};
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
  const auto since_ampere = [&](const char* name) { return section.number("mps_since_ampere", name); };
  out.mps_since_ampere = {.together = since_ampere("together"),
                          .turn_weight = since_ampere("turn_weight"),
                          .low = since_ampere("low"),
                          .high = since_ampere("high")};
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
