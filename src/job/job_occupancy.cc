#include "gpucast/job_occupancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "gpucast/error.h"
#include "src/base/bounded.h"
#include "src/job/typical_launch.h"
#include "src/occupancy/counters.h"
#include "src/occupancy/occupancy.h"
#include "src/occupancy/occupancy_card.h"
#include "src/occupancy/wheel.h"
#include "src/predict/facts.h"
#include "src/schedule/step_schedule.h"
#include "src/time/card_rates.h"
#include "src/time/duration.h"
#include "src/work/step_operations.h"

namespace gpucast {
namespace {

constexpr int kAssumedRegisters = 32;

// All launches with the same sizes and resources, and therefore the same occupancy.
struct LaunchShape {
  const StepOperation* first = nullptr;
  Launch launch;
  KernelResources kernel;
  ResourceSource source = ResourceSource::assumed;
  const char* like = "";
  double warps = 1;       // the part of a block's warps that are active on average
  double time_share = 1;  // of its call's time
  Occupancy occupancy;
  double gpu_ns = 0;
  int64_t launches = 0;
};

class OccupancySums {
 public:
  void add(const Occupancy& occupancy, const CounterShares& counters, double ns) {
    const double achieved = occupancy.achieved;
    out_.min = count_ == 0 ? achieved : std::min(out_.min, achieved);
    out_.max = std::max(out_.max, achieved);
    sum_ += achieved;
    weighted_ += ns * counters.occupancy;
    active_ += ns * counters.sm_active;
    ns_ += ns;
    ++count_;
  }
  OccupancyFigures figures() const {
    OccupancyFigures out = out_;
    out.mean_of_kernels = count_ > 0 ? sum_ / static_cast<double>(count_) : 0;
    out.time_weighted = ns_ > 0 ? weighted_ / ns_ : 0;
    return out;
  }
  double sm_active() const { return ns_ > 0 ? active_ / ns_ : 0; }
  double ns() const { return ns_; }
  int64_t count() const { return count_; }

 private:
  OccupancyFigures out_;
  double sum_ = 0, weighted_ = 0, active_ = 0, ns_ = 0;
  int64_t count_ = 0;
};

CounterConstants counter_constants(const StepConstants& constants) {
  return {.empty_ns = constants.empty_ns,
          .uneven = constants.uneven,
          .most_empty = constants.most_empty,
          .busy_warps = constants.busy_warps,
          .early_warps = constants.early_warps};
}

// The length of the union of intervals, which may overlap.
double covered_ns(std::vector<std::pair<double, double>>* intervals) {
  std::sort(intervals->begin(), intervals->end());
  double out = 0, until = -1;
  for (const auto& [from, to] : *intervals) {
    const double begin = std::max(from, until);
    if (to > begin) out += to - begin;
    until = std::max(until, to);
  }
  return out;
}

std::string remedy_text(const OccupancyRemedy& remedy) {
  using What = OccupancyRemedy::What;
  switch (remedy.what) {
    case What::none:
      return "";
    case What::fewer_registers:
      return fmt::format("at most {} registers a thread", remedy.goal);
    case What::less_shared_memory:
      return fmt::format("at most {:.1f} KiB of shared memory a block", static_cast<double>(remedy.goal) / 1024);
    case What::other_block:
      return fmt::format("blocks of {} threads", remedy.goal);
    case What::more_blocks:
      return fmt::format("{} would", remedy.goal);
  }
  return "";
}

// The kernels of the installed PyTorch; empty, with a note, if they cannot be read.
KernelTable kernels_of_wheel(const Trace& trace, const JobOccupancyOptions& options, const Gpu& gpu, std::vector<std::string>* notes) {
  if (!options.wheel.empty()) return wheel_kernels(options.wheel, gpu.compute_major, gpu.compute_minor, options.cache).kernels;
  const std::string& folder = trace.process.torch_folder;
  if (folder.empty()) {
    notes->emplace_back("the capture does not say where its PyTorch is installed: name its folder with --wheel, or capture again");
    return {};
  }
  try {
    if (const std::string release = wheel_release(folder); release != trace.process.torch)
      throw Error(fmt::format("there is PyTorch {} now, not {}", release.empty() ? "nothing" : release, trace.process.torch), folder,
                  "name its folder with --wheel");
    return wheel_kernels(folder, gpu.compute_major, gpu.compute_minor, options.cache).kernels;
  } catch (const Error& error) {
    notes->push_back(fmt::format("the kernels of PyTorch could not be read: {} ({}); {}", error.what(), error.where, error.hint));
    return {};
  }
}

KernelOccupancy kernel_of(const LaunchShape& shape, const OccupancyCard& card) {
  KernelOccupancy out;
  out.name = shape.first->name;
  out.kernel = shape.first->kernel;
  out.like = shape.like;
  out.source = shape.source;
  out.blocks = shape.launch.blocks;
  out.block_threads = shape.launch.block_threads;
  out.registers = shape.kernel.registers;
  out.shared_bytes = shape.kernel.static_shared_bytes + shape.launch.dynamic_shared_bytes;
  out.blocks_per_sm = shape.occupancy.resident.blocks;
  out.warps_per_sm = shape.occupancy.warps;
  const bool fills = shape.launch.blocks >= int64_t{out.blocks_per_sm} * card.multiprocessors;
  out.limit = fills ? occupancy_limit_name(shape.occupancy.resident.limit) : "grid";
  out.theoretical = shape.occupancy.theoretical;
  out.achieved = shape.occupancy.achieved;
  out.sm_active = shape.occupancy.sm_active;
  out.waves = shape.occupancy.waves;
  out.tail = shape.occupancy.tail;
  const OccupancyRemedy remedy = occupancy_remedy(card, shape.kernel, shape.launch);
  out.remedy = remedy_text(remedy);
  out.remedy_achieved = remedy.achieved;
  out.gpu_ns = shape.gpu_ns;
  out.launches = shape.launches;
  return out;
}

// The shapes of one step on one card, each made once.
class Shapes {
 public:
  Shapes(const Trace& trace, const StepOperations& step, const CardRates& rates, const OccupancyCard& card, KernelTable wheel,
         double early_warps)
      : trace_(trace), step_(step), rates_(rates), card_(card), wheel_(std::move(wheel)), early_warps_(early_warps) {}

  // One launch for a kernel, the typical ones for a library's call.
  std::span<LaunchShape> shapes_of_work(const StepOperation& operation, const Work& work) {
    const bool kernel = work.kind == WorkKind::kernel;
    const Key key = {operation.shape, kernel ? work.name.index() : SIZE_MAX, kernel ? work.compiled : -1, work.grid,
                     work.block,      kernel ? work.size_bytes : 0};
    const auto [found, added] = shapes_.try_emplace(key);
    std::vector<LaunchShape>& shapes = found->second;
    if (!added) return shapes;
    if (kernel) {
      shapes.push_back(shape_of_kernel(work));
    } else {
      shapes = shapes_of_call(step_.shapes[operation.shape]);
    }
    for (LaunchShape& shape : shapes) {
      shape.first = &operation;
      shape.occupancy = occupancy(card_, shape.kernel, shape.launch);
    }
    return shapes;
  }

  // By time.
  std::vector<const LaunchShape*> largest_first() const {
    std::vector<const LaunchShape*> out;
    out.reserve(shapes_.size());
    for (const auto& [key, shapes] : shapes_)
      for (const LaunchShape& shape : shapes) out.push_back(&shape);
    std::stable_sort(out.begin(), out.end(), [](const LaunchShape* a, const LaunchShape* b) { return a->gpu_ns > b->gpu_ns; });
    return out;
  }

 private:
  using Key = std::tuple<uint32_t, size_t, int32_t, std::array<uint32_t, 3>, std::array<uint32_t, 3>, int64_t>;

  LaunchShape shape_of_kernel(const Work& work) {
    LaunchShape shape;
    shape.launch = {bounded_product({work.grid[0], work.grid[1], work.grid[2]}),
                    static_cast<int>(std::min<int64_t>(INT32_MAX, bounded_product({work.block[0], work.block[1], work.block[2]}))),
                    work.size_bytes};
    find_resources(work, &shape);
    shape.warps = early_warps_;
    return shape;
  }

  std::vector<LaunchShape> shapes_of_call(const Operation& sizes) const {
    std::vector<LaunchShape> out;
    for (const TypicalLaunch& typical : typical_launches(sizes, rates_, card_)) {
      LaunchShape& shape = out.emplace_back();
      shape.launch = typical.launch;
      shape.kernel = typical.kernel;
      shape.like = typical.like;
      shape.warps = typical.warps;
      shape.time_share = typical.time_share;
      shape.source = ResourceSource::typical;
    }
    if (!out.empty()) return out;
    constexpr int kThreads = 256;
    constexpr int64_t kBytesOfThread = 16;
    LaunchShape& shape = out.emplace_back();
    shape.source = ResourceSource::assumed;
    shape.kernel.registers = kAssumedRegisters;
    shape.launch = {std::max<int64_t>(1, (sizes.bytes_read + sizes.bytes_written) / kBytesOfThread / kThreads), kThreads, 0};
    shape.warps = early_warps_;
    return out;
  }

  void find_resources(const Work& work, LaunchShape* shape) {
    if (work.compiled >= 0) {
      const CompiledKernel& compiled = trace_.observed.compiled[static_cast<size_t>(work.compiled)];
      shape->kernel.registers = compiled.registers;
      shape->kernel.static_shared_bytes = compiled.static_shared_bytes;
      shape->kernel.local_bytes = compiled.local_bytes;
      shape->source = ResourceSource::compiled;
    } else if (const KernelResources* const found = wheel_.find(trace_.strings.text(work.name)); found != nullptr) {
      shape->kernel = *found;
      shape->source = ResourceSource::wheel;
    } else {
      shape->kernel.registers = kAssumedRegisters;
      shape->source = ResourceSource::assumed;
    }
  }

  const Trace& trace_;
  const StepOperations& step_;
  const CardRates& rates_;
  const OccupancyCard& card_;
  KernelTable wheel_;
  double early_warps_;
  std::map<Key, std::vector<LaunchShape>> shapes_;
};

bool runs_kernels(const Trace& trace, const StepOperation& operation) {
  const WorkKind kind = trace.observed.work[operation.first_work].kind;
  return kind == WorkKind::kernel || kind == WorkKind::call;  // copies have their own engines
}

// Divides an operator's time among its kernels: each gets the time of a launch, and a part of the rest in proportion to its threads. Calls
// take(LaunchShape&, nanoseconds).
template <class Take>
void for_each_kernel(const Trace& trace, const StepOperation& operation, double ns, const CardRates& rates, Shapes* shapes,
                     const Take& take) {
  const auto count = static_cast<double>(operation.work_count);
  const double floor_ns = std::min(ns / count, rates.launch_ns);
  const size_t end = operation.first_work + operation.work_count;
  const auto threads_of = [&](size_t work) {
    double threads = 0;
    for (const LaunchShape& shape : shapes->shapes_of_work(operation, trace.observed.work[work]))
      threads += static_cast<double>(shape.launch.blocks) * shape.launch.block_threads;
    return threads;
  };
  double threads = 0;
  for (size_t w = operation.first_work; w < end; ++w) threads += threads_of(w);
  for (size_t w = operation.first_work; w < end; ++w) {
    const double work_ns = floor_ns + (ns - floor_ns * count) * (threads > 0 ? threads_of(w) / threads : 1 / count);
    for (LaunchShape& shape : shapes->shapes_of_work(operation, trace.observed.work[w])) take(shape, work_ns * shape.time_share);
  }
}

OccupancyPart part_of(std::string name, const OccupancySums& sums, double total_ns) {
  return {std::move(name), sums.figures(), sums.sm_active(), sums.ns(), total_ns > 0 ? sums.ns() / total_ns : 0, sums.count()};
}

CardOccupancy occupancy_on_card(const Trace& trace, const StepOperations& step, const Gpu& gpu, const StepConstants& constants,
                                const JobOccupancyOptions& options) {
  CardOccupancy out;
  out.gpu_id = gpu.id;
  out.gpu_name = gpu.name;
  out.rates = std::make_shared<const CardRates>(card_rates(gpu, options.constants_json));
  const CardRates& rates = *out.rates;
  const OccupancyCard card = occupancy_card(gpu);
  const std::vector<Duration> durations = durations_of(step, rates);
  std::vector<GpuTimeline::Span> spans;
  const Schedule plan =
      schedule(step, durations, constants, host_scale(step.host, constants) / options.cpu_speed, &spans, step.loop_batch.ns);
  const CounterConstants counters = counter_constants(constants);
  Shapes shapes(trace, step, rates, card, kernels_of_wheel(trace, options, gpu, &out.notes), counters.early_warps);
  OccupancySums all;
  std::map<Phase, OccupancySums> phases;
  std::map<int64_t, OccupancySums> modules;
  std::array<double, static_cast<size_t>(ResourceSource::count_)> source_ns{};
  std::vector<std::pair<double, double>> busy;
  double bytes = 0, tensor_s = 0;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    const StepOperation& operation = step.operations[i];
    const Operation& sizes = step.shapes[operation.shape];
    const double ns = durations[operation.shape].expected_ns;
    bytes += static_cast<double>(sizes.bytes_read + sizes.bytes_written);
    if (!runs_kernels(trace, operation)) continue;
    // Recurrent calls are not in this figure.
    const bool products = makes_products(sizes.kind) && sizes.kind != OperationKind::recurrent;
    if (products && rates.tensor_cores[sizes.precision] && rates.peak_flop_per_s[sizes.precision] > 0)
      tensor_s += sizes.flops / rates.peak_flop_per_s[sizes.precision];
    busy.emplace_back(spans[i].start_ns, spans[i].end_ns);
    for_each_kernel(trace, operation, ns, rates, &shapes, [&](LaunchShape& shape, double kernel_ns) {
      shape.gpu_ns += kernel_ns;
      ++shape.launches;
      source_ns[static_cast<size_t>(shape.source)] += kernel_ns;
      const CounterShares shares = counter_shares(shape.occupancy, shape.warps, kernel_ns, counters);
      const int64_t module = operation.module.valid() ? static_cast<int64_t>(operation.module.index()) : -1;
      for (OccupancySums* sums : {&all, &phases[operation.phase], &modules[module]}) sums->add(shape.occupancy, shares, kernel_ns);
    });
  }
  if (all.count() == 0)
    throw Error("the observed step started no kernel", trace.path,
                "does the script train on CUDA? `gpucast analyze` says where its memory goes");
  out.occupancy = all.figures();
  out.launches = all.count();
  out.gpu_ns = all.ns();
  out.step_ns = plan.step_ns;
  const auto of_step = [&](double ns) { return std::min(1.0, ns / plan.step_ns); };
  out.of_step = of_step(all.ns() * out.occupancy.time_weighted);
  out.sm_active = of_step(all.ns() * all.sm_active());
  out.nvml_utilization = of_step(covered_ns(&busy));
  out.bandwidth = of_step(bytes / rates.peak_bytes_per_s * 1e9);
  out.tensor_cores = of_step(tensor_s * 1e9);
  for (size_t s = 0; s < source_ns.size(); ++s) out.source_share[s] = all.ns() > 0 ? source_ns[s] / all.ns() : 0;
  for (const auto& [phase, sums] : phases) out.by_phase.push_back(part_of(phase_name(phase), sums, all.ns()));
  for (const auto& [module, sums] : modules)
    out.by_module.push_back(part_of(module < 0 ? "(no module)" : module_label(trace, ModuleId(module)), sums, all.ns()));
  std::stable_sort(out.by_module.begin(), out.by_module.end(),
                   [](const OccupancyPart& a, const OccupancyPart& b) { return a.gpu_ns > b.gpu_ns; });
  for (const LaunchShape* shape : shapes.largest_first()) {
    out.kernels.push_back(kernel_of(*shape, card));
    out.kernels.back().share = shape->gpu_ns / all.ns();
  }
  return out;
}

}  // namespace

const char* resource_source_name(ResourceSource source) {
  switch (source) {
    case ResourceSource::wheel:
      return "wheel";
    case ResourceSource::compiled:
      return "compiled";
    case ResourceSource::typical:
      return "typical";
    case ResourceSource::assumed:
      return "assumed";
    case ResourceSource::count_:
      break;
  }
  return "";
}

JobOccupancy job_occupancy(const Facts& facts, const JobOccupancyOptions& options) {
  const StepOperations& step = observed_step(facts);
  const Trace& trace = facts.trace;
  if (!(options.cpu_speed > 0) || !std::isfinite(options.cpu_speed))
    throw Error("the host's speed is a positive number", "", "1 is this machine");
  JobOccupancy out;
  out.command = trace.header.command;
  out.torch = trace.process.torch;
  out.step = trace.observed.step;
  out.samples = step.samples;
  const StepConstants constants = read_step_constants(options.constants_json);
  for (const Gpu& gpu : options.gpus) out.cards.push_back(occupancy_on_card(trace, step, gpu, constants, options));
  return out;
}

std::vector<double> operation_occupancies(const Facts& facts, const Gpu& gpu) {
  std::vector<double> out;
  if (!facts.step || facts.step->operations.empty() || !has_rates(gpu) ||
      find_capability_rules(gpu.compute_major, gpu.compute_minor) == nullptr)
    return out;
  const StepOperations& step = *facts.step;
  const Trace& trace = facts.trace;
  const CardRates rates = card_rates(gpu);
  const OccupancyCard card = occupancy_card(gpu);
  const std::vector<Duration> durations = durations_of(step, rates);
  JobOccupancyOptions options;
  options.cache = kernel_cache_folder();
  std::vector<std::string> notes;
  const CounterConstants counters = counter_constants(step_constants());
  Shapes shapes(trace, step, rates, card, kernels_of_wheel(trace, options, gpu, &notes), counters.early_warps);
  out.reserve(step.operations.size());
  for (const StepOperation& operation : step.operations) {
    double weighted = 0, known_ns = 0;
    if (runs_kernels(trace, operation)) {
      for_each_kernel(trace, operation, durations[operation.shape].expected_ns, rates, &shapes, [&](const LaunchShape& shape, double ns) {
        if (shape.source == ResourceSource::assumed) return;
        weighted += ns * counter_shares(shape.occupancy, shape.warps, ns, counters).occupancy;
        known_ns += ns;
      });
    }
    out.push_back(known_ns > 0 ? weighted / known_ns : -1);
  }
  return out;
}

}  // namespace gpucast
