#include "src/schedule/launch_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "src/base/json.h"
#include "src/schedule/step_schedule.h"
#include "src/time/duration.h"
#include "src/trace/read_arguments.h"
#include "src/work/library_call.h"
#include "src/work/observe_step.h"

namespace gpucast {
namespace {

double threads_of(const Work& work) {
  double out = 1;
  for (size_t i = 0; i < 3; ++i) out *= std::max<uint32_t>(1, work.grid[i]) * static_cast<double>(std::max<uint32_t>(1, work.block[i]));
  return out;
}

std::string kernel_key(const Work& work, std::string_view name) {
  return fmt::format("{} {} {} {} {} {} {} {}", work.grid[0], work.grid[1], work.grid[2], work.block[0], work.block[1], work.block[2],
                     work.size_bytes, name);
}

// Removes the first word from `text` and returns it.
std::string_view word(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view out = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return out;
}
int64_t number(std::string_view* text) {
  const std::string_view digits = word(text);
  int64_t out = 0;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return std::max<int64_t>(0, out);
}

}  // namespace

LaunchTimes::LaunchTimes(const Trace& trace, const StepOperations& step, const CardRates& rates)
    : rates_(rates), tf32_products_(trace.observed.tf32_products), tf32_convolutions_(trace.observed.tf32_convolutions) {
  const std::vector<Duration> durations = durations_of(step, rates);
  // The time of an operation is divided among its launches in proportion to their threads.
  for (const StepOperation& operation : step.operations) {
    const Work* const first = &trace.observed.work[operation.first_work];
    if (first->kind != WorkKind::kernel) continue;
    const Duration& duration = durations[operation.shape];
    const Engine engine = engine_of(step.shapes[operation.shape]);
    double threads = 0;
    for (size_t i = 0; i < operation.work_count; ++i) threads += threads_of(first[i]);
    for (size_t i = 0; i < operation.work_count; ++i) {
      SeenKernel& seen = kernels_[kernel_key(first[i], trace.strings.text(first[i].name))];
      TimeSum& sum = operation.known ? seen.known : seen.unknown;
      const double ns = duration.expected_ns * threads_of(first[i]) / threads;
      sum.ns += ns;
      sum.weighted_demand += demand_of(duration, engine, step_constants());
      sum.count += 1;
    }
  }
}

GpuTimeline::Work LaunchTimes::answer(std::string_view question) {
  ++questions_;
  Operation operation;
  const std::string_view kind = word(&question);
  if (kind == "kernel") {
    const auto found = kernels_.find(std::string(question));
    if (found != kernels_.end()) {
      const TimeSum& sum = found->second.known.count > 0 ? found->second.known : found->second.unknown;
      unknown_questions_ += found->second.known.count > 0 ? 0 : 1;
      return {sum.ns / sum.count, Engine::compute, sum.weighted_demand / sum.count, 0};
    }
    ++unknown_questions_;
    Work work;
    for (uint32_t& one : work.grid) one = static_cast<uint32_t>(number(&question));
    for (uint32_t& one : work.block) one = static_cast<uint32_t>(number(&question));
    operation = operation_by_threads(work);
  } else if (kind == "call") {
    const std::string_view library = word(&question), name = word(&question);
    const std::optional<Operation> known =
        library_call(library, name, call_arguments(Json::parse(question)), {tf32_products_, tf32_convolutions_});
    unknown_questions_ += known ? 0 : 1;
    operation = known ? *known : operation_by_threads({});
  } else if (kind == "copy" || kind == "fill") {
    Work work;
    work.kind = kind == "copy" ? WorkKind::copy : WorkKind::memset;
    if (kind == "copy") work.copy_kind = number(&question);
    work.size_bytes = number(&question);
    work.pageable = work.kind == WorkKind::copy && number(&question) == 1;
    operation = operation_of_copy(work);
  } else {
    return {};
  }
  const Duration duration = operation_duration(operation, rates_);
  const Engine engine = engine_of(operation);
  return {duration.expected_ns, engine, demand_of(duration, engine, step_constants()), 0};
}

}  // namespace gpucast
