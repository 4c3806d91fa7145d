// sbatch commands and the lines of gres.conf that they need: slurm.schedmd.com/gres.html, "MPS Management" and "Sharding". A shard is one
// MiB here, so that Slurm adds up memory; it does not enforce the limit. Shards and MPS belong to one card, so a gang gets whole cards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpucast/error.h"
#include "src/report/pack/pack_manifest.h"

namespace gpucast {

std::string slurm_manifest(const PackReport& report, const ManifestOptions& options) {
  if (report.plan.mode == pack::SharingMode::mig)
    throw Error("MIG slices are GPUs of their own to Slurm, with types that the site names", "", "another --mode");
  const bool limits = report.plan.mode == pack::SharingMode::mps_limits;
  std::string out = "#!/bin/sh\n# Submits the jobs of a plan. gres.conf of a node with these cards:\n";
  for (size_t t = 0; t < report.cluster.types.size(); ++t) {
    const Gpu& gpu = report.cluster.types[t];
    const auto cards =
        std::count_if(report.cluster.cards.begin(), report.cluster.cards.end(), [&](const auto& card) { return card.type == t; });
    out += fmt::format("#   Name=gpu Type={} Count={}\n", gpu.id, cards);
    if (is_shared(report))
      out += limits ? fmt::format("#   Name=mps Count={}\n", 100 * cards)
                    : fmt::format("#   Name=shard Count={}\n", cards * static_cast<int64_t>(gpu.total_memory_bytes >> 20));
  }
  out += "# and GresTypes=gpu,shard,mps in slurm.conf. The feature of a node's type of card is its name here.\n\n";
  for (const Request& request : requests_of(report)) {
    std::string gres = fmt::format("gpu:{}:{}", request.gpu->id, request.job->cards);
    if (is_shared(report) && request.job->cards == 1)
      gres = limits ? fmt::format("mps:{}", std::max(request.percent, static_cast<int>(std::ceil(request.memory_share * 100 - 1e-9))))
                    : fmt::format("shard:{}", request.memory_mib);
    const std::vector<std::string>& words = command_of(request, "Slurm");
    const bool is_text = words.size() == 3 && words[0] == "sh" && words[1] == "-c";
    const std::string command = is_text ? words[2] : shell_words(words);
    out += fmt::format("sbatch --job-name={} --constraint={} --gres={}{} --wrap={}\n", request.id, request.gpu->id, gres,
                       options.queue.empty() ? "" : " --partition=" + shell_words({options.queue}), shell_words({command}));
  }
  return out;
}

}  // namespace gpucast
