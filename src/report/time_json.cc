// Step times for scripts. docs/reference/time.md is the contract.

#include "gpucast/step_time.h"
#include "src/base/json.h"
#include "src/report/json_parts.h"

namespace gpucast {
namespace {

constexpr size_t kMostKernels = 50;

Json part_json(const TimePart& part) {
  return {{"name", part.name},         {"gpu_ns", part.gpu_ns}, {"share", part.share}, {"ideal_ns", part.ideal_ns},
          {"launches", part.launches}, {"flops", part.flops},   {"bytes", part.bytes}};
}

Json parts_json(const std::vector<TimePart>& parts) {
  Json out = Json::array();
  for (const TimePart& part : parts) out.push_back(part_json(part));
  return out;
}

Json kernel_json(const KernelTime& kernel) {
  return {{"name", kernel.name},   {"kernel", kernel.kernel},     {"kind", kernel.kind},         {"sizes", kernel.sizes},
          {"bound", kernel.bound}, {"calls", kernel.calls},       {"launches", kernel.launches}, {"gpu_ns", kernel.gpu_ns},
          {"share", kernel.share}, {"ideal_ns", kernel.ideal_ns}, {"known", kernel.known}};
}

Json card_json(const StepTimes& times, const CardTime& card) {
  Json kernels = Json::array();
  for (size_t i = 0; i < card.kernels.size() && i < kMostKernels; ++i) kernels.push_back(kernel_json(card.kernels[i]));
  return {{"gpu", card.gpu_id},
          {"gpu_name", card.gpu_name},
          {"card_measured", card.measured_card},
          {"step", time_range_json(card.step)},
          {"bound", step_bound_name(card.bound)},
          {"gpu_ns", card.gpu_ns},
          {"host_ns", card.host_ns},
          {"samples_per_s", card.samples_per_s},
          {"tokens_per_s", card.tokens_per_s},
          {"model_flops_utilisation", card.model_flops_utilisation},
          {"hardware_flops_utilisation", card.hardware_flops_utilisation},
          {"peak_precision", card.peak_precision},
          {"coverage", times.coverage},
          {"unknown_share", card.unknown_share},
          {"by_phase", parts_json(card.by_phase)},
          {"by_kind", parts_json(card.by_kind)},
          {"by_module", parts_json(card.by_module)},
          {"kernels", std::move(kernels)}};
}

}  // namespace

std::string step_times_json(const StepTimes& times) {
  Json out;
  out["schema_version"] = 1;
  out["torch"] = times.torch;
  out["command"] = times.command;
  out["step_observed"] = times.step;
  out["samples"] = times.samples;
  out["tokens"] = times.tokens;
  out["model_flops"] = times.model_flops;
  out["hardware_flops"] = times.hardware_flops;
  out.update(card_json(times, times.cards.front()));
  out["cards"] = Json::array();
  for (const CardTime& card : times.cards) out["cards"].push_back(card_json(times, card));
  return out.dump(2) + "\n";
}

}  // namespace gpucast
