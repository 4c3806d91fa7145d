// Occupancy for scripts. docs/reference/occupancy.md is the contract.

#include "gpucast/job_occupancy.h"
#include "src/base/json.h"

namespace gpucast {
namespace {

constexpr size_t kMostKernels = 50;

Json figures_json(const OccupancyFigures& figures) {
  return {
      {"mean_of_kernels", figures.mean_of_kernels}, {"time_weighted", figures.time_weighted}, {"min", figures.min}, {"max", figures.max}};
}

Json parts_json(const std::vector<OccupancyPart>& parts) {
  Json out = Json::array();
  for (const OccupancyPart& part : parts)
    out.push_back({{"name", part.name},
                   {"occupancy", figures_json(part.occupancy)},
                   {"sm_active", part.sm_active},
                   {"gpu_ns", part.gpu_ns},
                   {"share", part.share},
                   {"launches", part.launches}});
  return out;
}

Json kernel_json(const KernelOccupancy& kernel) {
  Json out = {{"name", kernel.name},
              {"kernel", kernel.kernel},
              {"source", resource_source_name(kernel.source)},
              {"blocks", kernel.blocks},
              {"block_threads", kernel.block_threads},
              {"registers", kernel.registers},
              {"shared_bytes", kernel.shared_bytes},
              {"blocks_per_sm", kernel.blocks_per_sm},
              {"warps_per_sm", kernel.warps_per_sm},
              {"limit", kernel.limit},
              {"theoretical", kernel.theoretical},
              {"achieved", kernel.achieved},
              {"sm_active", kernel.sm_active},
              {"waves", kernel.waves},
              {"tail", kernel.tail},
              {"gpu_ns", kernel.gpu_ns},
              {"share", kernel.share},
              {"launches", kernel.launches}};
  if (!kernel.like.empty()) out["like"] = kernel.like;
  if (!kernel.remedy.empty()) out["remedy"] = {{"what", kernel.remedy}, {"achieved", kernel.remedy_achieved}};
  return out;
}

Json card_json(const CardOccupancy& card) {
  Json sources, kernels = Json::array();
  for (int s = 0; s < static_cast<int>(ResourceSource::count_); ++s)
    sources[resource_source_name(static_cast<ResourceSource>(s))] = card.source_share[s];
  for (size_t i = 0; i < card.kernels.size() && i < kMostKernels; ++i) kernels.push_back(kernel_json(card.kernels[i]));
  Json occupancy = figures_json(card.occupancy);
  occupancy["of_step"] = card.of_step;
  if (card.dnn_occu) occupancy["dnn_occu"] = *card.dnn_occu;
  return {{"gpu", card.gpu_id},
          {"gpu_name", card.gpu_name},
          {"occupancy", std::move(occupancy)},
          {"nvml_utilization", card.nvml_utilization},
          {"sm_active", card.sm_active},
          {"bandwidth", card.bandwidth},
          {"tensor_cores", card.tensor_cores},
          {"step_ns", card.step_ns},
          {"gpu_ns", card.gpu_ns},
          {"launches", card.launches},
          {"sources", std::move(sources)},
          {"notes", card.notes},
          {"by_phase", parts_json(card.by_phase)},
          {"by_module", parts_json(card.by_module)},
          {"kernels", std::move(kernels)}};
}

}  // namespace

std::string job_occupancy_json(const JobOccupancy& job) {
  Json out;
  out["schema_version"] = 1;
  out["torch"] = job.torch;
  out["command"] = job.command;
  out["step_observed"] = job.step;
  out["samples"] = job.samples;
  out.update(card_json(job.cards.front()));
  out["cards"] = Json::array();
  for (const CardOccupancy& card : job.cards) out["cards"].push_back(card_json(card));
  return out.dump(2) + "\n";
}

}  // namespace gpucast
