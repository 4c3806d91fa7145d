// The text report of `gpucast occupancy`: one card in detail, several as a table.

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "gpucast/job_occupancy.h"
#include "src/report/folded_layers.h"
#include "src/report/text_writer.h"

namespace gpucast {
namespace {

constexpr size_t kRows = 10;

// "limited by registers; with at most 80 registers a thread 75.0 %". Library kernels get no remedy, because the user cannot change them.
std::string limit_sentence(const KernelOccupancy& kernel) {
  if (kernel.blocks_per_sm == 0) return "no block of this size fits the card";
  if (kernel.limit == "grid") return fmt::format("too few blocks to fill the card: {}", kernel.remedy);
  if (kernel.limit == "warps" && kernel.theoretical >= 1)
    return kernel.achieved > 0.95 ? "full" : fmt::format("full, but for the last of {} waves", kernel.waves);
  const char* why = kernel.limit == "registers"       ? "limited by registers"
                    : kernel.limit == "shared_memory" ? "limited by shared memory"
                    : kernel.limit == "blocks"        ? "limited by the number of blocks"
                                                      : "limited by the number of warps";
  if (kernel.source != ResourceSource::compiled || kernel.remedy.empty()) return why;
  return fmt::format("{}; {} with {}", why, percent(kernel.remedy_achieved), kernel.remedy);
}

void write_parts(TextWriter& out, const char* title, const std::vector<OccupancyPart>& rows) {
  out.line();
  out.line(out.bold(fmt::format("{:<46}{:>12}{:>9}{:>12}{:>11}", title, "GPU time", "share", "occupancy", "SM active")));
  for (size_t i = 0; i < rows.size() && i < kRows; ++i) {
    const OccupancyPart& part = rows[i];
    out.format("  {:<44}{:>12}{:>9}{:>12}{:>11}", cut_begin(printable(part.name), 43), time_text(part.gpu_ns), percent(part.share),
               percent(part.occupancy.time_weighted), percent(part.sm_active));
  }
}

std::vector<OccupancyPart> of_all_layers(const std::vector<OccupancyPart>& modules) {
  std::vector<OccupancyPart> out = folded_layers(
      modules, [](const OccupancyPart&) { return 0; },
      [](const OccupancyPart& part, OccupancyPart* sum) {
        const double ns = sum->gpu_ns + part.gpu_ns;
        const auto mean = [&](double a, double b) { return ns > 0 ? (a * sum->gpu_ns + b * part.gpu_ns) / ns : a; };
        sum->occupancy.time_weighted = mean(sum->occupancy.time_weighted, part.occupancy.time_weighted);
        sum->sm_active = mean(sum->sm_active, part.sm_active);
        sum->gpu_ns = ns;
        sum->share += part.share;
      });
  std::stable_sort(out.begin(), out.end(), [](const OccupancyPart& a, const OccupancyPart& b) { return a.gpu_ns > b.gpu_ns; });
  return out;
}

void write_card(TextWriter& out, const CardOccupancy& card) {
  out.line(out.bold(
      fmt::format("{} occupancy on {} ({}), over the kernels' time", percent(card.occupancy.time_weighted), card.gpu_id, card.gpu_name)));
  out.format("  {} kernels a step: mean {}, lowest {}, highest {}", card.launches, percent(card.occupancy.mean_of_kernels),
             percent(card.occupancy.min), percent(card.occupancy.max));
  if (card.dnn_occu) out.format("  DNN-occu's network guesses a mean of {} from the model's graph", percent(*card.dnn_occu));
  out.format("  of the whole step, {}, gaps counted: occupancy {}, SM active {}", time_text(card.step_ns), percent(card.of_step),
             percent(card.sm_active));
  out.format("  GPU utilisation as nvidia-smi shows it: {}; memory bandwidth {}, tensor cores {}", percent(card.nvml_utilization),
             percent(card.bandwidth), percent(card.tensor_cores));
  write_parts(out, "By phase", card.by_phase);
  write_parts(out, "By module", of_all_layers(card.by_module));
  out.line();
  out.line(out.bold(fmt::format("{:<46}{:>12}{:>9}{:>12}{:>11}", "Kernels", "GPU time", "share", "theoretical", "achieved")));
  for (size_t i = 0; i < card.kernels.size() && i < kRows; ++i) {
    const KernelOccupancy& kernel = card.kernels[i];
    out.format("  {:<44}{:>12}{:>9}{:>12}{:>11}", cut_end(printable(kernel.name), 43), time_text(kernel.gpu_ns), percent(kernel.share),
               percent(kernel.theoretical), percent(kernel.achieved));
    out.format("    {} x {} threads, {} registers{}: {}", kernel.blocks, kernel.block_threads, kernel.registers,
               kernel.shared_bytes > 0 ? fmt::format(", {:.1f} KiB", static_cast<double>(kernel.shared_bytes) / 1024) : "",
               limit_sentence(kernel));
  }
  out.line();
  const auto share = [&](ResourceSource source) { return percent(card.source_share[static_cast<int>(source)]); };
  out.wrapped(
      "", fmt::format("Registers and shared memory, by time: {} from the machine code of PyTorch, {} compiled at run time, {} of typical "
                      "kernels of cuBLAS, cuDNN and NCCL, which choose on the card, {} assumed.",
                      share(ResourceSource::wheel), share(ResourceSource::compiled), share(ResourceSource::typical),
                      share(ResourceSource::assumed)));
  for (const std::string& note : card.notes) out.wrapped("  ", printable(note));
}

}  // namespace

std::string job_occupancy_text(const JobOccupancy& job, bool colour) {
  TextWriter out(colour);
  write_card(out, job.cards.front());
  if (job.cards.size() < 2) return out.take();
  out.line();
  out.line(out.bold(fmt::format("{:<14}{:>12}{:>14}{:>12}{:>12}{:>14}{:>12}", "Card", "occupancy", "mean of all", "of step", "SM active",
                                "nvidia-smi", "a step")));
  for (const CardOccupancy& card : job.cards)
    out.format("  {:<12}{:>12}{:>14}{:>12}{:>12}{:>14}{:>12}", card.gpu_id, percent(card.occupancy.time_weighted),
               percent(card.occupancy.mean_of_kernels), percent(card.of_step), percent(card.sm_active), percent(card.nvml_utilization),
               time_text(card.step_ns));
  return out.take();
}

}  // namespace gpucast
