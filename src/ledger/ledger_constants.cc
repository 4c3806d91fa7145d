#include "src/ledger/ledger_constants.h"

#include "ledger_json.h"
#include "src/base/constants_file.h"

namespace gpucast {

LedgerConstants parse_ledger_constants(const char* text) {
  const ConstantSection section("ledger", text, "");
  LedgerConstants out;
  const std::string measured_name = ".context_mib";
  for (const auto& [full_name, number] : section.numbers()) {
    if (!full_name.ends_with(measured_name)) continue;
    const std::string id = full_name.substr(0, full_name.size() - measured_name.size());
    const auto of_card = [&](const char* name) { return section.number(id, name); };
    out.measured[id] = {.context_low_mib = of_card("context_low_mib"),
                        .context_mib = number,
                        .context_high_mib = of_card("context_high_mib"),
                        .kernels_low_mib = of_card("kernels_low_mib"),
                        .kernels_mib = of_card("kernels_mib"),
                        .kernels_high_mib = of_card("kernels_high_mib"),
                        .cuda_major = static_cast<int>(of_card("cuda_major"))};
  }
  out.other_release_mib = section.number("measured", "other_release_mib");
  out.stack_kib_per_thread = section.number("context", "stack_kib_per_thread");
  out.context_base_mib = section.number("context", "base_mib");
  out.context_per_stack_mib = section.number("context", "per_stack_mib");
  out.context_least = section.number("context", "least");
  out.context_most = section.number("context", "most");
  out.kernels_base_mib = section.number("kernels", "base_mib");
  out.kernels_per_stack_mib = section.number("kernels", "per_stack_mib");
  out.kernels_least = section.number("kernels", "least");
  out.kernels_more_mib = section.number("kernels", "more_mib");
  out.profile_error = section.number("profile", "error");
  out.interval_confidence = section.number("calibrated", "confidence");
  return out;
}

const LedgerConstants& ledger_constants() {
  static const LedgerConstants built_in = parse_ledger_constants(kLedgerJson);
  return built_in;
}

}  // namespace gpucast
