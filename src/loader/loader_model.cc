#include "src/loader/loader_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpucast {
namespace {

constexpr double kNormal90 = 1.645;  // 90 % of a normal distribution is within this many standard deviations

const LoaderRun* run_with(const LoaderRecord& loader, int64_t workers) {
  for (const LoaderRun& run : loader.runs)
    if (run.workers == workers) return &run;
  return nullptr;
}

// A fetch in its own process, without the wait for a CPU that another program used.
double undisturbed_ns(const LoaderRun& run, const LoaderConstants& constants) {
  const double cpu_ns = run.workers == 0 ? run.main_cpu_ns : run.cpu_ns;
  const double least_ns = cpu_ns > 0 ? std::min(cpu_ns, run.period_ns) : run.period_ns * constants.undisturbed_share;
  return std::max(run.period_ns - run.queue_ns, least_ns);
}

// The standard deviation of the logarithm of a run's mean.
double noise_of(const LoaderRun& run, const LoaderConstants& constants) {
  double scatter = 0;
  if (run.fetches_ns.size() > 2) {
    const double count = static_cast<double>(run.fetches_ns.size());
    const double mean = std::accumulate(run.fetches_ns.begin(), run.fetches_ns.end(), 0.0) / count;
    double squares = 0;
    for (const double ns : run.fetches_ns) squares += (ns - mean) * (ns - mean);
    scatter = std::sqrt(squares / (count - 1)) / mean / std::sqrt(static_cast<double>(run.batches));
  } else {
    scatter = constants.few_noise;
  }
  return std::hypot(constants.least_noise, scatter, constants.others_noise * std::min(1.0, run.others_cores));
}

TimeRange around(double ns, double noise) { return {ns * std::exp(-kNormal90 * noise), ns, ns * std::exp(kNormal90 * noise)}; }

double full_cores(double cores, double threads_per_core, const LoaderConstants& constants) {
  const double physical = cores / threads_per_core;
  return std::max(physical * (1 + constants.second_thread * (threads_per_core - 1)), 0.1);
}

std::vector<double> variation_of(const LoaderRecord& loader, double most_variation) {
  const LoaderRun* calmest = nullptr;
  const auto disturbance = [](const LoaderRun& run) { return run.queue_ns / run.period_ns; };
  for (const LoaderRun& run : loader.runs) {
    if (run.workers <= 1 && run.fetches_ns.size() >= 4 && (!calmest || disturbance(run) < disturbance(*calmest))) calmest = &run;
  }
  if (!calmest) return {};
  std::vector<double> out = calmest->fetches_ns;
  const double mean = std::accumulate(out.begin(), out.end(), 0.0) / static_cast<double>(out.size());
  double sum = 0;
  for (double& factor : out) sum += factor = std::clamp(factor / mean, 1 / most_variation, most_variation);
  for (double& factor : out) factor *= static_cast<double>(out.size()) / sum;
  return out;
}

}  // namespace

const char* loader_limit_name(LoaderLimit limit) {
  switch (limit) {
    case LoaderLimit::workers:
      return "workers";
    case LoaderLimit::cores:
      return "cores";
    case LoaderLimit::storage:
      return "storage";
    case LoaderLimit::pinning:
      return "pinning";
  }
  return "";
}

std::optional<LoaderModel> loader_model(const LoaderRecord& loader, const LoopBatch& loop, const LoaderHost& host,
                                        const LoaderConstants& constants) {
  if (loader.kind != LoaderKind::dataloader || (loader.runs.empty() && loop.ns <= 0)) return std::nullopt;
  LoaderModel out;
  out.host = host;
  out.constants = constants;
  out.measured = !loader.runs.empty();
  const double machine_cores = loader.cores > 0 ? loader.cores : 1;
  const auto threads = static_cast<double>(loader.threads_per_core);
  out.cores = full_cores((host.cores > 0 ? host.cores : machine_cores) / static_cast<double>(std::max(loader.ranks, host.ranks)), threads,
                         constants);
  out.pin_ns = loader.pin_memory ? loader.pin_ns / host.cpu_speed : 0;
  out.variation = variation_of(loader, constants.most_variation);

  const LoaderRun* alone = run_with(loader, 0);
  const LoaderRun* one = run_with(loader, 1);
  // The time of one process, and the share of it that is CPU time.
  const double inline_ns = alone         ? undisturbed_ns(*alone, constants)
                           : loop.ns > 0 ? loop.ns
                                         : undisturbed_ns(loader.runs.front(), constants);
  const double inline_noise = alone ? noise_of(*alone, constants) : constants.worker_noise;
  const auto share = [](double cpu_ns, double ns) { return cpu_ns > 0 && ns > 0 ? std::min(1.0, cpu_ns / ns) : 1.0; };
  const double inline_cpu_ns = alone ? alone->cpu_ns : loop.ns > 0 ? loop.cpu_ns : 0;
  const double inline_share = share(inline_cpu_ns, inline_ns);
  const LoaderRun* any = one ? one : alone;
  if (!any && !loader.runs.empty()) any = &loader.runs.front();
  if (any && any->read_known) {
    out.read_bytes = any->read_bytes;
    out.files = any->files;
    // Reads from mapped files are not recorded. A batch needs at least its own bytes.
    if (any->mapped && out.read_bytes < static_cast<double>(any->batch_bytes)) out.read_bytes = static_cast<double>(any->batch_bytes);
    out.cached_share = out.read_bytes > 0 ? 1 - std::min(1.0, any->device_bytes / out.read_bytes) : 0;
  }
  out.inline_batch = around(out.moved_ns(inline_ns, inline_share), inline_noise);

  std::vector<ScalabilityPoint> points;
  for (const LoaderRun& run : loader.runs) {
    if (run.workers < 1) continue;
    ScalabilityPoint point{run.workers, 0, noise_of(run, constants)};
    const double ns = run.workers == 1 ? undisturbed_ns(run, constants) : run.period_ns;
    point.rate = 1e9 / ns;
    const double cpu_ns = run.cpu_ns + run.main_cpu_ns;
    const double free_cores =
        std::max(full_cores(loader.cores > 0 ? loader.cores : 1, threads, constants) - run.others_cores, constants.least_free_cores);
    if (run.workers > 1 && cpu_ns > 0) point.highest_rate = free_cores / cpu_ns * 1e9;
    points.push_back(point);
  }
  out.laws = fit_scalability(points, constants);
  if (one) {
    // Workers that run at once need more or less CPU time than one alone, because they share caches. The CPU time of several is used,
    // because cores are full only with several workers.
    const LoaderRun& most = loader.runs.back();
    out.worker_cpu_ns = most.cpu_ns / host.cpu_speed;
    out.worker_cpu_share = share(one->cpu_ns, undisturbed_ns(*one, constants));
    out.take_ns = most.main_cpu_ns / host.cpu_speed;
  } else {
    out.worker_cpu_ns = (inline_cpu_ns > 0 ? inline_cpu_ns : inline_ns) * constants.worker_over_inline / host.cpu_speed;
    out.worker_cpu_share = inline_share;
    out.take_ns = constants.take_ns / host.cpu_speed;
  }
  if (loader.pin_memory) {  // the pinning thread gets batches from the workers; the training process gets them from a queue
    const double left_ns = std::min(out.take_ns, constants.take_ns / host.cpu_speed);
    out.pin_ns += out.take_ns - left_ns;
    out.take_ns = left_ns;
  }
  if (out.laws.empty())
    out.laws = fit_scalability({{1, 1e9 / (inline_ns * constants.worker_over_inline), std::hypot(inline_noise, constants.worker_noise)}},
                               constants);
  return out;
}

double LoaderModel::moved_ns(double ns, double cpu_share) const {
  double waits_ns = ns * (1 - cpu_share);
  // The named disk replaces the measured machine's disk. The time waited is removed if much of the data was read from that disk.
  if (host.storage && cached_share < constants.cached) waits_ns = 0;
  return ns * cpu_share / host.cpu_speed + waits_ns + storage_wait_ns();
}

double LoaderModel::storage_wait_ns() const { return host.storage ? gpucast::storage_ns(*host.storage, read_bytes, files) : 0; }

BatchTime LoaderModel::batch(int64_t workers, double busy_ns) const {
  BatchTime out;
  if (workers <= 0) {
    out.time = inline_batch;
    return out;
  }
  const auto n = static_cast<double>(workers);
  const auto [known, unknown] = rates.try_emplace(workers);
  if (unknown) known->second = rate_at(laws, n);
  const Rate rate = known->second;
  // n workers make batches at once: one worker's time for a batch, divided by n.
  const auto period = [&](double batches_per_s) { return moved_ns(n / batches_per_s * 1e9, worker_cpu_share) / n; };
  out.time = {period(rate.high), period(rate.expected), period(rate.low)};
  const auto at_least = [&](LoaderLimit limit, const TimeRange& floor) {
    if (floor.expected_ns > out.time.expected_ns) out.limit = limit;
    out.time.low_ns = std::max(out.time.low_ns, floor.low_ns);
    out.time.expected_ns = std::max(out.time.expected_ns, floor.expected_ns);
    out.time.high_ns = std::max(out.time.high_ns, floor.high_ns);
  };
  at_least(LoaderLimit::cores, around((worker_cpu_ns + take_ns + pin_ns + busy_ns) / cores, constants.cores_noise));
  if (host.storage) {
    const double all_ns = read_bytes / host.storage->device_bytes_per_s * 1e9;
    at_least(LoaderLimit::storage, {all_ns, all_ns, all_ns});
  }
  at_least(LoaderLimit::pinning, {pin_ns, pin_ns, pin_ns});
  return out;
}

std::optional<TimeRange> loader_batch_time(const LoaderRecord& loader) {
  const std::optional<LoaderModel> model = loader_model(loader, {}, {}, loader_constants());
  if (!model) return std::nullopt;
  return model->batch(loader.workers, 0).time;
}

}  // namespace gpucast
