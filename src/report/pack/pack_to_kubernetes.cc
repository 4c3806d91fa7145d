// Kubernetes jobs (batch/v1), for the schedulers in which a pod can request a part of a card. The text is JSON for `kubectl apply -f`.
//   NVIDIA's device plugin: github.com/NVIDIA/k8s-device-plugin, README, "Shared Access to GPUs", "CUDA MPS"; node labels as its GPU
//   feature discovery writes them. HAMi: github.com/Project-HAMi/HAMi, docs/config.md. KAI: github.com/kai-scheduler/KAI-Scheduler,
//   docs/gpu-sharing. Volcano: github.com/volcano-sh/volcano, docs/user-guide/how_to_use_volcano_vgpu.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "gpucast/error.h"
#include "src/base/json.h"
#include "src/report/pack/pack_manifest.h"

namespace gpucast {
namespace {

constexpr const char* kGpu = "nvidia.com/gpu";

// As GPU feature discovery labels nodes: "NVIDIA-A100-SXM4-80GB".
std::string product_of(const Gpu& gpu) {
  std::string out = gpu.name;
  std::replace(out.begin(), out.end(), ' ', '-');
  return out;
}

struct Pod {
  Json limits = Json::object();  // amounts, as text
  Json annotations = Json::object(), labels = Json::object(), selector = Json::object();
  std::string scheduler;  // "": the cluster's default
};

Json job_of(const Request& request, const ManifestOptions& options, const PackReport& report, const Pod& pod) {
  Json container = {{"name", "train"}, {"image", options.image}};
  if (!request.job->command.empty()) container["command"] = request.job->command;
  if (!pod.limits.empty()) container["resources"] = {{"limits", pod.limits}};
  Json spec = {{"restartPolicy", "Never"}, {"containers", Json::array()}};
  spec["containers"].push_back(container);
  if (!pod.selector.empty()) spec["nodeSelector"] = pod.selector;
  if (!pod.scheduler.empty()) spec["schedulerName"] = pod.scheduler;
  Json metadata = {{"labels", pod.labels}, {"annotations", pod.annotations}};
  metadata["labels"]["app.kubernetes.io/created-by"] = "gpucast";
  Json about = {{"gpucast/request-bytes", std::to_string(request.placement->request_bytes)}, {"gpucast/job", request.job->name}};
  std::string neighbours;
  for (const uint32_t other : request.placement->neighbours) neighbours += (neighbours.empty() ? "" : ", ") + report.jobs[other].name;
  if (!neighbours.empty()) about["gpucast/neighbours"] = neighbours;
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", {{"name", request.id}, {"annotations", about}}},
          {"spec", {{"backoffLimit", 0}, {"template", {{"metadata", metadata}, {"spec", spec}}}}}};
}

void need_image(const ManifestOptions& options) {
  if (options.image.empty())
    throw Error("Kubernetes runs jobs in containers", "", "--image NAME says which image has the training program");
}
void refuse(const PackReport& report, pack::SharingMode mode, const char* scheduler) {
  if (report.plan.mode != mode) return;
  throw Error(fmt::format("{} does not share cards by {}", scheduler, pack::sharing_mode_name(mode)), "",
              "another --mode, or --to kubernetes: NVIDIA's device plugin");
}

template <class Fill>
std::string list_of(const PackReport& report, const ManifestOptions& options, Json items, const Fill& fill) {
  need_image(options);
  for (const Request& request : requests_of(report)) {
    Pod pod;
    fill(request, &pod);
    items.push_back(job_of(request, options, report, pod));
  }
  return Json{{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}}.dump(2) + "\n";
}

}  // namespace

// A card is divided into replicas: the highest number of jobs that the plan has on one card of its type at once. Each pod gets one replica.
// Under MPS a replica has an equal part of the memory; with time slices memory is not divided. So only a job that needs at most that part
// may share. Other jobs request a whole card, on a node whose cards are not divided.
std::string kubernetes_manifest(const PackReport& report, const ManifestOptions& options) {
  const bool mig = report.plan.mode == pack::SharingMode::mig, sharing = is_shared(report) && !mig;
  std::map<const Gpu*, int> replicas;
  for (size_t card = 0; card < report.cluster.cards.size(); ++card) {
    int& most = replicas[&report.cluster.types[report.cluster.cards[card].type]];
    most = std::max(most, report.plan.cards[card].most_jobs);
  }
  Json items = Json::array();
  if (sharing) {
    Json files = Json::object();
    for (const Gpu& gpu : report.cluster.types) {
      if (replicas[&gpu] < 2) continue;
      files[gpu.id] = fmt::format("version: v1\nsharing:\n  {}:\n    resources:\n    - name: {}\n      replicas: {}\n",
                                  report.plan.mode == pack::SharingMode::timeslice ? "timeSlicing" : "mps", kGpu, replicas[&gpu]);
    }
    if (!files.empty())
      items.push_back({{"apiVersion", "v1"},
                       {"kind", "ConfigMap"},
                       {"metadata", {{"name", "gpucast-device-plugin"}, {"namespace", "nvidia-device-plugin"}}},
                       {"data", files}});
  }
  return list_of(report, options, std::move(items), [&](const Request& request, Pod* pod) {
    const int parts = sharing ? replicas[request.gpu] : 1;
    const bool shares = parts > 1 && request.job->cards == 1 && request.memory_share <= 1.0 / parts;
    if (mig) {
      const std::string profile = pack::mig_profiles(*request.gpu)[static_cast<size_t>(request.placement->mig_profile)].name;
      pod->limits["nvidia.com/mig-" + profile] = std::to_string(request.job->cards);
    } else {
      pod->limits[kGpu] = std::to_string(shares ? 1 : request.job->cards);
    }
    pod->selector["nvidia.com/gpu.product"] = product_of(*request.gpu) + (shares ? "-SHARED" : "");
  });
}

std::string hami_manifest(const PackReport& report, const ManifestOptions& options) {
  refuse(report, pack::SharingMode::mig, "HAMi");
  return list_of(report, options, Json::array(), [&](const Request& request, Pod* pod) {
    pod->limits[kGpu] = std::to_string(request.job->cards);
    if (is_shared(report)) pod->limits["nvidia.com/gpumem"] = std::to_string(request.memory_mib);
    if (report.plan.mode == pack::SharingMode::mps_limits) pod->limits["nvidia.com/gpucores"] = std::to_string(request.percent);
    pod->annotations["nvidia.com/use-gputype"] = request.gpu->name.substr(request.gpu->name.find(' ') + 1);
  });
}

// KAI shares cards by memory in every mode. It does not enforce the limits.
std::string kai_manifest(const PackReport& report, const ManifestOptions& options) {
  refuse(report, pack::SharingMode::mig, "KAI");
  return list_of(report, options, Json::array(), [&](const Request& request, Pod* pod) {
    pod->scheduler = "kai-scheduler";
    pod->labels["kai.scheduler/queue"] = options.queue.empty() ? "default" : options.queue;
    pod->selector["nvidia.com/gpu.product"] = product_of(*request.gpu);
    const double fraction = std::ceil(request.memory_share * 100 - 1e-9) / 100;
    if (!is_shared(report) || fraction >= 1) {
      pod->limits[kGpu] = std::to_string(request.job->cards);
      return;
    }
    pod->annotations["gpu-fraction"] = fmt::format("{:.2f}", fraction);
    if (request.job->cards > 1) pod->annotations["gpu-fraction-num-devices"] = std::to_string(request.job->cards);
  });
}

std::string volcano_manifest(const PackReport& report, const ManifestOptions& options) {
  refuse(report, pack::SharingMode::mig, "Volcano's vGPU");
  return list_of(report, options, Json::array(), [&](const Request& request, Pod* pod) {
    pod->scheduler = "volcano";
    if (!options.queue.empty()) pod->annotations["scheduling.volcano.sh/queue-name"] = options.queue;
    pod->limits["volcano.sh/vgpu-number"] = std::to_string(request.job->cards);
    if (is_shared(report)) pod->limits["volcano.sh/vgpu-memory"] = std::to_string(request.memory_mib);
    if (report.plan.mode == pack::SharingMode::mps_limits) pod->limits["volcano.sh/vgpu-cores"] = std::to_string(request.percent);
    pod->selector["nvidia.com/gpu.product"] = product_of(*request.gpu);
  });
}

}  // namespace gpucast
