#include "gpucast/step_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "gpucast/error.h"
#include "src/attribution/attribute.h"
#include "src/job/job_step.h"
#include "src/job/loader_time.h"
#include "src/job/more_replicas.h"
#include "src/predict/facts.h"
#include "src/schedule/step_schedule.h"
#include "src/time/card_rates.h"
#include "src/time/duration.h"
#include "src/time/power.h"
#include "src/work/step_operations.h"

namespace gpucast {
namespace {

std::string sizes_text_of(const Operation& op) {
  const char* type = precision_name(op.precision);
  if (op.kind == OperationKind::gemm) {
    const GemmShape& g = op.gemm;
    return g.batch > 1 ? fmt::format("{} of {} x {} x {}, {}", g.batch, g.m, g.n, g.k, type)
                       : fmt::format("{} x {} x {}, {}", g.m, g.n, g.k, type);
  }
  if (op.kind == OperationKind::convolution && op.convolution.batch > 0) {
    const ConvolutionShape& c = op.convolution;
    return fmt::format("{}: {} x {} to {}, window {} x {}, {}{}", pass_name(c.pass), c.batch, c.in_channels, c.out_channels, c.window[0],
                       c.window[1], c.groups > 1 ? fmt::format("{} groups, ", c.groups) : "", type);
  }
  if (op.kind == OperationKind::attention && op.attention.batch > 0) {
    const AttentionShape& a = op.attention;
    return fmt::format("{}: {} x {} heads of {}, {} x {}, {}", pass_name(a.pass), a.batch, a.heads, a.head_dim, a.queries, a.keys, type);
  }
  return fmt::format("{:.1f} MB", static_cast<double>(op.bytes_read + op.bytes_written) / 1e6);
}

// Operations that no report distinguishes. They are the same for every card.
struct OperationGroup {
  const StepOperation* first;
  int64_t count = 0;
};

std::vector<OperationGroup> groups_of(const StepOperations& step) {
  using Key = std::tuple<uint32_t, Phase, size_t, std::string_view>;
  std::map<Key, size_t> known;
  std::vector<OperationGroup> out;
  for (const StepOperation& work : step.operations) {
    const size_t module = work.module.valid() ? work.module.index() : SIZE_MAX;
    const auto [found, added] = known.try_emplace({work.shape, work.phase, module, work.name}, out.size());
    if (added) out.push_back({&work});
    ++out[found->second].count;
  }
  return out;
}

template <class Key>
struct TimeParts {
  std::map<Key, TimePart> parts;
  void add(const Key& key, const Operation& op, const Duration& duration, int64_t count) {
    TimePart& part = parts[key];
    const auto times = static_cast<double>(count);
    part.gpu_ns += times * duration.expected_ns;
    part.ideal_ns += times * duration.ideal_ns;
    part.launches += count * op.launches;
    part.flops += times * op.flops;
    part.bytes += times * static_cast<double>(op.bytes_read + op.bytes_written);
  }
};

void set_shares(std::vector<TimePart>* parts, double gpu_ns, bool by_size) {
  for (TimePart& part : *parts) part.share = gpu_ns > 0 ? part.gpu_ns / gpu_ns : 0;
  if (by_size) std::stable_sort(parts->begin(), parts->end(), [](const TimePart& a, const TimePart& b) { return a.gpu_ns > b.gpu_ns; });
}

// The precision of most FLOPs. Utilisation is a share of its peak.
Precision main_precision(const StepOperations& step) {
  std::array<double, static_cast<size_t>(Precision::count_)> flops{};
  for (const StepOperation& work : step.operations) {
    const Operation& op = step.shapes[work.shape];
    if (makes_products(op.kind)) flops[static_cast<size_t>(op.precision)] += op.flops;
  }
  const auto most = std::max_element(flops.begin(), flops.end());
  return *most > 0 ? static_cast<Precision>(most - flops.begin()) : Precision::fp32;
}

// The step's interval. Work that is not known widens it: where it is a share of the GPU's time, that share has an interval of its own.
// Shares are of the GPU's time; a step that waits for its host gets longer only by what the host's time does not cover.
TimeRange step_interval(const Schedule& plan, double guessed_share, double unknown_share, const CardRates& rates) {
  const double known_share = 1 - guessed_share - unknown_share;
  const double low =
      known_share * rates.step_interval.low + guessed_share * rates.guessed_interval.low + unknown_share * rates.unknown_interval.low;
  const double high =
      known_share * rates.step_interval.high + guessed_share * rates.guessed_interval.high + unknown_share * rates.unknown_interval.high;
  const double idle_ns = std::max(0.0, plan.host_ns - plan.gpu_ns);
  const double shorter_ns = idle_ns > 0 ? 0 : plan.gpu_ns * std::max(0.0, rates.step_interval.low - low);
  const double longer_ns = std::max(0.0, plan.gpu_ns * (high - rates.step_interval.high) - idle_ns);
  return {plan.step_ns * rates.step_interval.low - shorter_ns, plan.step_ns, plan.step_ns * rates.step_interval.high + longer_ns};
}

// Two errors that do not depend on each other, as factors.
double both_factors(double a, double b) { return std::exp(std::hypot(std::log(a), std::log(b))); }

// The interval where the host of the card may be slower or faster than expected: the step is scheduled with both.
TimeRange with_hosts(const TimeRange& step, const StepOperations& operations, const std::vector<Duration>& durations,
                     const StepConstants& constants, double scale) {
  const auto step_ns = [&](double factor) { return schedule(operations, durations, constants, scale * factor).step_ns; };
  const double slow = step_ns(constants.slow_host) / step.expected_ns, fast = step.expected_ns / step_ns(constants.fast_host);
  return {step.expected_ns / both_factors(step.expected_ns / step.low_ns, fast), step.expected_ns,
          step.expected_ns * both_factors(step.high_ns / step.expected_ns, slow)};
}

double width_of(const TimeRange& range) { return std::log(range.high_ns / range.low_ns); }

// The interval, this many times as wide.
TimeRange with_width(const TimeRange& range, double factor) {
  return {range.expected_ns * std::pow(range.low_ns / range.expected_ns, factor), range.expected_ns,
          range.expected_ns * std::pow(range.high_ns / range.expected_ns, factor)};
}

const Machine& machine_of(const Gpu& gpu, const StepTimeOptions& options) {
  return options.machine ? *options.machine : usual_machine(gpu);
}

CardRates rates_in_machine(const Gpu& gpu, const StepTimeOptions& options) {
  CardRates rates = card_rates(gpu, options.constants_json);
  rates.links = machine_of(gpu, options).links;
  return rates;
}

CardTime card_time(const Trace& trace, const StepOperations& step, const std::vector<OperationGroup>& groups, const StepTimes& times,
                   const Gpu& gpu, const StepConstants& constants, const StepTimeOptions& options, CardWork* work_of_card) {
  const CardRates rates = rates_in_machine(gpu, options);
  const std::vector<Duration> durations = durations_of(step, rates);
  const double scale_of_host = host_scale(step.host, constants) / options.cpu_speed;
  const Schedule plan = schedule(step, durations, constants, scale_of_host);

  CardTime out;
  out.gpu_id = gpu.id;
  out.gpu_name = gpu.name;
  out.measured_card = rates.own_constants;
  out.estimated = gpu.estimated;
  out.gpu_ns = plan.gpu_ns;
  out.host_ns = plan.host_ns;
  out.bound = plan.host_ns > plan.gpu_ns ? StepBound::host : StepBound::gpu;

  TimeParts<int> phases, kinds;
  TimeParts<int64_t> modules;
  std::map<std::pair<uint32_t, std::string_view>, KernelTime> kernels;
  std::map<std::string_view, UnknownOperator> unknown_operators;
  double total = 0, unknown = 0, guessed = 0;
  for (const OperationGroup& group : groups) {
    const StepOperation& work = *group.first;
    const Operation& op = step.shapes[work.shape];
    const Duration& duration = durations[work.shape];
    const double ns = static_cast<double>(group.count) * duration.expected_ns;
    total += ns;
    add_work(op, duration, rates, static_cast<double>(group.count), work_of_card);
    if (!work.known) unknown += ns;
    if (work.guessed) {
      guessed += ns;
      UnknownOperator& named = unknown_operators[work.name];
      named.launches += group.count * op.launches;
      named.share += ns;
    }
    phases.add(static_cast<int>(work.phase), op, duration, group.count);
    kinds.add(static_cast<int>(op.kind), op, duration, group.count);
    modules.add(work.module.valid() ? static_cast<int64_t>(work.module.index()) : -1, op, duration, group.count);
    KernelTime& kernel = kernels[{work.shape, work.name}];
    if (kernel.calls == 0) {
      kernel.name = work.name;
      kernel.kernel = work.kernel;
      kernel.kind = operation_kind_name(op.kind);
      kernel.bound = bound_name(duration.bound);
      kernel.sizes = sizes_text_of(op);
      kernel.known = work.known;
    }
    kernel.calls += group.count;
    kernel.launches += group.count * op.launches;
    kernel.gpu_ns += ns;
    kernel.ideal_ns += static_cast<double>(group.count) * duration.ideal_ns;
  }
  out.unknown_share = total > 0 ? unknown / total : 0;
  out.step = step_interval(plan, total > 0 ? guessed / total : 0, total > 0 ? (unknown - guessed) / total : 0, rates);
  if (plan.host_ns * constants.slow_host > plan.gpu_ns) {
    const double width = width_of(out.step);
    out.step = with_hosts(out.step, step, durations, constants, scale_of_host);
    out.host_widens = width > 0 ? width_of(out.step) / width : 1;
  }
  for (auto& [phase, part] : phases.parts) {
    part.name = phase_name(static_cast<Phase>(phase));
    out.by_phase.push_back(part);
  }
  for (auto& [kind, part] : kinds.parts) {
    part.name = operation_kind_name(static_cast<OperationKind>(kind));
    out.by_kind.push_back(part);
  }
  for (auto& [module, part] : modules.parts) {
    part.name = module < 0 ? "(no module)" : module_label(trace, ModuleId(module));
    out.by_module.push_back(part);
  }
  set_shares(&out.by_phase, total, false);
  set_shares(&out.by_kind, total, true);
  set_shares(&out.by_module, total, true);
  for (auto& [key, kernel] : kernels) {
    kernel.share = total > 0 ? kernel.gpu_ns / total : 0;
    out.kernels.push_back(std::move(kernel));
  }
  std::stable_sort(out.kernels.begin(), out.kernels.end(), [](const KernelTime& a, const KernelTime& b) { return a.gpu_ns > b.gpu_ns; });

  for (auto& [name, named] : unknown_operators)
    out.unknown_operators.push_back({std::string(name), named.launches, total > 0 ? named.share / total : 0});
  std::ranges::stable_sort(out.unknown_operators, std::ranges::greater(), &UnknownOperator::share);

  const Precision precision = main_precision(step);
  const double peak = rates.peak_flop_per_s[precision];
  out.peak_precision = precision_name(precision);
  if (peak > 0 && plan.step_ns > 0) {
    // A backward may skip products: of frozen weights, of the gradient of the model's input.
    out.model_flops_utilisation = std::min(times.model_flops, times.hardware_flops) / (plan.step_ns * 1e-9) / peak;
    out.hardware_flops_utilisation = times.hardware_flops / (plan.step_ns * 1e-9) / peak;
  }
  return out;
}

// Cards of one compute capability run the same kernels.
bool shares_kernels(const Gpu& a, const Gpu& b) { return compute_capability(a) == compute_capability(b); }

void scale_times(CardTime* card, double factor) {
  for (double* value : {&card->step.low_ns, &card->step.expected_ns, &card->step.high_ns, &card->gpu_ns, &card->host_ns}) *value *= factor;
  for (auto* parts : {&card->by_phase, &card->by_kind, &card->by_module})
    for (TimePart& part : *parts) part.gpu_ns *= factor;
  for (KernelTime& kernel : card->kernels) kernel.gpu_ns *= factor;
  card->model_flops_utilisation /= factor;
  card->hardware_flops_utilisation /= factor;
}

}  // namespace

const char* step_bound_name(StepBound bound) {
  switch (bound) {
    case StepBound::gpu:
      return "gpu";
    case StepBound::host:
      return "host";
    case StepBound::loader:
      return "loader";
    case StepBound::communication:
      return "communication";
  }
  return "";
}

namespace {

// The position in the allocator's history at which each operation was requested: always between its mark and the next one; within them, by
// the clocks.
std::vector<uint32_t> positions_of(const Trace& trace, const StepOperations& step) {
  const std::vector<uint32_t> positions = mark_positions(trace);
  std::vector<std::pair<int64_t, uint32_t>> marks;
  marks.reserve(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) marks.emplace_back(trace.marks[i].sequence, positions[i]);
  std::sort(marks.begin(), marks.end());
  std::vector<uint32_t> out;
  out.reserve(step.operations.size());
  for (const StepOperation& work : step.operations) {
    const auto next = std::partition_point(marks.begin(), marks.end(), [&](const auto& mark) { return mark.first <= work.mark; });
    const uint32_t from = next == marks.begin() ? 0 : std::prev(next)->second;
    const uint32_t to = next == marks.end() ? static_cast<uint32_t>(trace.events.size()) : std::max(from, next->second);
    const auto at = std::partition_point(trace.events.begin() + from, trace.events.begin() + to, [&](const AllocatorEvent& event) {
      return static_cast<double>(event.time_us) <= work.asked_unix_us;
    });
    out.push_back(static_cast<uint32_t>(at - trace.events.begin()));
  }
  return out;
}

// How many ranks of a node feed themselves from loaders of their own.
int64_t loaders_of_node(const StepOperations& step) { return std::clamp<int64_t>(step.node_ranks, 1, step.ranks); }

// Of the training machine, as its system counts them; 0: as on this machine.
double host_cores(const StepTimeOptions& options, const LoaderRecord& record) {
  if (options.cores > 0 || !options.machine) return options.cores;
  return static_cast<double>(options.machine->cores * std::max<int64_t>(1, record.threads_per_core));
}

StepBound bound_of(const RankStep& rank, double gpu_ns) {
  const double communication_ns = rank.exposed_ns + rank.waiting_ns;
  if (rank.idle_ns > communication_ns) return rank.host_ns > gpu_ns ? StepBound::host : StepBound::gpu;
  return communication_ns > rank.compute_ns ? StepBound::communication : StepBound::gpu;
}

// Unset: one process trains alone.
std::optional<JobRanks> captured_job(const std::vector<const Facts*>& ranks, const StepConstants& constants,
                                     const StepTimeOptions& options) {
  const StepOperations& first = observed_step(*ranks.front());
  if (first.ranks == 1 && ranks.size() == 1) {
    if (options.ranks == 0) return std::nullopt;
    throw Error("one process trains alone in this capture, so it does not say what several would exchange", ranks.front()->trace.path,
                "capture a job of two ranks or more, or give the command: --scale 1,8 -- COMMAND");
  }
  std::vector<StepOperations> steps;
  for (const Facts* facts : ranks) {
    if (facts->trace.header.command != ranks.front()->trace.header.command)
      throw Error("these captures are of different commands", facts->trace.path, "give the captures of one run");
    steps.push_back(observed_step(*facts));
  }
  JobRanks out = job_ranks(std::move(steps), constants);
  if (options.ranks > 0) set_replicas(options.ranks, &out);
  return out;
}

// The errors of a card's kernels and of its links are added: what a model of a job leaves out makes both longer. `alone`: a rank's step
// without others; `job`: with the interval of its communication. `exposed_ns`: communication that the card waits for.
TimeRange job_interval(const TimeRange& alone, const TimeRange& job, double exposed_ns) {
  const double rest_ns = std::max(0.0, job.expected_ns - exposed_ns);
  const auto away_ns = [&](double alone_ns, double job_ns) {
    return rest_ns * (alone_ns / alone.expected_ns - 1) + job_ns - job.expected_ns;
  };
  return {job.expected_ns + away_ns(alone.low_ns, job.low_ns), job.expected_ns, job.expected_ns + away_ns(alone.high_ns, job.high_ns)};
}

// The step is the job's.
void add_job(JobRanks* ranks, const NcclSettings& nccl, const Gpu& gpu, const StepConstants& constants, const StepTimeOptions& options,
             CardTime* card) {
  CardRates rates = rates_in_machine(gpu, options);
  rates.nccl = nccl;
  JobStep job = job_step(ranks, machine_of(gpu, options), rates, constants, {options.cpu_speed, options.job_slices});
  const double longer = job.step.expected_ns / card->step.expected_ns;
  const RankStep& busiest = job.captured[job.busiest];
  card->step = job_interval(card->step, job.step, busiest.exposed_ns);
  card->model_flops_utilisation /= longer;
  card->hardware_flops_utilisation /= longer;
  card->host_ns = busiest.host_ns;
  card->bound = bound_of(busiest, card->gpu_ns);
  card->job = std::move(job);
}

// After the step's time is known. A kernel of NCCL that waits keeps the card busy. `factor`: by which its times were multiplied.
void add_power(const Gpu& gpu, CardWork work, double factor, const PowerConstants& constants, CardTime* card) {
  if (gpu.power_w <= 0 || card->step.expected_ns <= 0) return;
  work.busy_ns = card->gpu_ns;
  if (card->job) {
    const RankStep& busiest = card->job->captured[card->job->busiest];
    work.busy_ns = (busiest.compute_ns + busiest.exposed_ns + busiest.waiting_ns) * factor;
  }
  card->power = power_of_step(gpu, work, card->step, card->bound == StepBound::gpu, constants);
}

void check_options(const StepTimeOptions& options, const Trace& trace, const StepOperations& step) {
  if (step.operations.empty())
    throw Error("the observed step asked nothing of the GPU", trace.path,
                "does the script train on CUDA? `gpucast analyze` says where its memory goes");
  if (!(options.cpu_speed > 0) || !std::isfinite(options.cpu_speed))
    throw Error("the host's speed is a positive number", "", "1 is this machine");
  for (const auto& [id, price] : options.price_per_hour) {
    if (std::none_of(options.gpus.begin(), options.gpus.end(), [&id = id](const Gpu& gpu) { return gpu.id == id; }))
      throw Error(fmt::format("there is a price of {}, but --gpu does not name this card", id), "", "name it in --gpu, too");
  }
  if (options.machine)
    for (const Gpu& gpu : options.gpus) check_machine_has(*options.machine, gpu);
  if (options.cores < 0 || !std::isfinite(options.cores)) throw Error("the machine's cores are a positive number", "", "such as 16");
}

void add_flops(const StepOperations& step, StepTimes* out) {
  bool backward = false;
  for (const StepOperation& work : step.operations) {
    const Operation& op = step.shapes[work.shape];
    backward = backward || work.phase == Phase::backward;
    if (!makes_products(op.kind)) continue;
    out->hardware_flops += op.flops;
    if (work.phase == Phase::forward || work.phase == Phase::loss) out->model_flops += op.flops;
  }
  if (backward) out->model_flops *= 3;  // PaLM, appendix B: backward costs twice the forward; recomputation does not count
}

}  // namespace

std::vector<GpuSlice> gpu_slices(const Facts& facts, const Gpu& gpu) {
  std::vector<GpuSlice> out;
  if (!facts.step || !has_rates(gpu)) return out;
  const StepOperations& step = *facts.step;
  const std::vector<Duration> durations = durations_of(step, card_rates(gpu));
  std::vector<GpuTimeline::Span> spans;
  (void)schedule(step, durations, step_constants(), host_scale(step.host, step_constants()), &spans, step.loop_batch.ns);
  const std::vector<uint32_t> positions = positions_of(facts.trace, step);
  for (size_t i = 0; i < step.operations.size(); ++i) {
    const StepOperation& work = step.operations[i];
    const Operation& op = step.shapes[work.shape];
    const Duration& duration = durations[work.shape];
    out.push_back({work.name, work.kernel, operation_kind_name(op.kind), bound_name(duration.bound), sizes_text_of(op),
                   phase_name(work.phase), work.module, work.stream, static_cast<uint32_t>(i), positions[i], spans[i].start_ns,
                   duration.expected_ns, op.launches});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const GpuSlice& a, const GpuSlice& b) { return std::pair(a.stream, a.start_ns) < std::pair(b.stream, b.start_ns); });
  return out;
}

double cost(double ns, const CardTime& card) { return ns / 3600e9 * card.price_per_hour * static_cast<double>(card.count); }

StepTimes step_times(const Facts& facts, const StepTimeOptions& options) { return step_times(std::vector{&facts}, options); }

StepTimes step_times(const std::vector<const Facts*>& ranks, const StepTimeOptions& options) {
  const Facts& facts = *ranks.front();
  const StepOperations& step = observed_step(facts);
  const Trace& trace = facts.trace;
  check_options(options, trace, step);
  StepTimes out;
  out.command = trace.header.command;
  out.torch = trace.process.torch;
  out.step = trace.observed.step;
  out.samples = step.samples;
  out.tokens = step.tokens;
  out.coverage = step.work > 0 ? static_cast<double>(step.known_work) / static_cast<double>(step.work) : 0;
  add_flops(step, &out);
  const StepConstants constants = read_step_constants(options.constants_json);
  if (step.host.yardstick_ns > 0) out.server_speed = static_cast<double>(step.host.yardstick_ns) / constants.yardstick_ns;
  if (step.host.unobserved_steps > 0)
    out.host_steps = HostSteps{step.host.unobserved_steps, step.host.unobserved_ns, step.host.middle_unobserved_ns};
  const std::vector<OperationGroup> groups = groups_of(step);
  std::optional<JobRanks> job = captured_job(ranks, constants, options);
  const NcclSettings nccl = read_nccl_settings(trace.nccl_settings);
  const auto time_on = [&](const Gpu& gpu, CardWork* work) {
    CardTime card = card_time(trace, step, groups, out, gpu, constants, options, work);
    if (job) add_job(&*job, nccl, gpu, constants, options, &card);
    return card;
  };
  std::vector<CardWork> works(options.gpus.size());
  for (size_t i = 0; i < options.gpus.size(); ++i) out.cards.push_back(time_on(options.gpus[i], &works[i]));
  std::vector<double> factors(out.cards.size(), 1.0);  // each card's times are multiplied by it, where one card's step was measured
  if (!options.known_gpu.empty()) {
    const Gpu& known = find_gpu(options.known_gpu);
    CardWork unused;
    const double expected_ns = time_on(known, &unused).step.expected_ns;
    const double factor = options.known_step_ns / expected_ns;
    out.known = KnownStep{known.id, options.known_step_ns, expected_ns};
    for (size_t i = 0; i < out.cards.size(); ++i) {
      factors[i] = shares_kernels(known, find_gpu(out.cards[i].gpu_id)) ? factor : std::pow(factor, constants.known_share);
      scale_times(&out.cards[i], factors[i]);
      if (out.cards[i].gpu_id != known.id) {
        out.cards[i].step = with_width(out.cards[i].step, constants.known_width);
        continue;
      }
      out.cards[i].step_measured = true;
      out.cards[i].step.low_ns = out.cards[i].step.high_ns = out.cards[i].step.expected_ns;
    }
  }
  LoaderHost host{host_cores(options, trace.loader), loaders_of_node(job ? job->steps.front() : step), options.cpu_speed, options.storage};
  const std::optional<LoaderModel> loader =
      loader_model(trace.loader, step.loop_batch, host, read_loader_constants(options.constants_json));
  out.loader = loader_figures(trace.loader, step, loader, options.workers);
  out.epoch_steps = options.epoch_steps;
  if (out.epoch_steps == 0 && out.loader && out.loader->batches > 0)
    out.epoch_steps = static_cast<double>(trace.loader.epoch_batches) / static_cast<double>(out.loader->batches);
  const PowerConstants power = read_power_constants(options.constants_json);
  for (size_t i = 0; i < out.cards.size(); ++i) {
    CardTime& card = out.cards[i];
    if (loader && out.loader && out.loader->batches > 0)
      add_loader(*loader, *out.loader, step, durations_of(step, rates_in_machine(find_gpu(card.gpu_id), options)), constants, options,
                 factors[i], &card);
    const double seconds = card.step.expected_ns * 1e-9;
    if (seconds > 0) card.samples_per_s = static_cast<double>(card.job ? card.job->samples : out.samples) / seconds;
    if (seconds > 0) card.tokens_per_s = static_cast<double>(card.job ? card.job->tokens : out.tokens) / seconds;
    if (card.job) card.job->step = card.step;
    card.step_measured = card.step_measured && card.step.low_ns == card.step.high_ns;  // the known step had its batches ready
    card.epoch_ns = out.epoch_steps * card.step.expected_ns;
    if (card.job) card.count = card.job->ranks;
    add_power(options.gpus[i], works[i], factors[i], power, &card);
    if (const auto price = options.price_per_hour.find(card.gpu_id); price != options.price_per_hour.end())
      card.price_per_hour = price->second;
  }
  return out;
}

}  // namespace gpucast
