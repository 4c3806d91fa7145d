#include "src/schedule/launch_times.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "src/base/hex.h"
#include "src/base/json.h"
#include "src/kernels/known_kernels.h"
#include "src/schedule/step_player.h"
#include "src/time/duration.h"
#include "src/trace/read_arguments.h"
#include "src/work/communications.h"
#include "src/work/kernel_form.h"
#include "src/work/library_call.h"
#include "src/work/observe_step.h"
#include "src/work/operator_table.h"

namespace gpucast {
namespace {

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

template <class Launch>
void read_sizes(std::string_view* text, Launch* out) {
  for (uint32_t& one : out->grid) one = static_cast<uint32_t>(number(text));
  for (uint32_t& one : out->block) one = static_cast<uint32_t>(number(text));
}

}  // namespace

GpuTimeline::Work LaunchTimes::work_of(const Operation& operation) const {
  const Duration duration = operation_duration(operation, rates_);
  const Engine engine = engine_of(operation);
  return {.duration_ns = duration.expected_ns,
          .engine = engine,
          .demand = demand_of(duration, engine, step_constants()),
          .cold_ns = after_sweep_ns(operation, duration, rates_),
          .sweeps_l2 = sweeps_l2(operation, rates_),
          .limited_by_memory = duration.bound == Bound::memory};
}

std::optional<GpuTimeline::Work> LaunchTimes::answer_code(std::string_view question) {
  const std::string code(word(&question));
  KernelLaunch launch;
  read_sizes(&question, &launch);
  launch.dynamic_shared_bytes = static_cast<uint32_t>(number(&question));
  MachineCode machine_code;
  machine_code.registers = static_cast<int>(number(&question));
  machine_code.static_shared_bytes = number(&question);
  machine_code.local_bytes = number(&question);
  const std::optional<std::string> parameters = bytes_from_hex(word(&question));
  if (!parameters) return std::nullopt;
  launch.parameters = *parameters;
  std::vector<const KnownValues*> known;
  for (int64_t left = number(&question); left > 0; --left) {
    const auto found = values_.find(number(&question));
    if (found != values_.end()) known.push_back(&found->second);
  }
  const std::optional<CountedOperation> counted = counted_.operation(code, std::string(question), launch, machine_code, known);
  if (!counted) return std::nullopt;
  return work_of(counted->operation);
}

LaunchTimes::Communication LaunchTimes::communication(std::string_view question) {
  ++questions_;
  (void)word(&question);
  Trace trace;  // the group's ranks alone
  trace.node_ranks = number(&question);
  trace.process.rank = number(&question);
  const Json calls = Json::parse(question);
  StepOperations step;
  std::optional<Communications> communications;
  Operation operation;
  for (const Json& call : calls) {
    const auto name = call.at(0).get<std::string>();
    const CallArguments arguments = call_arguments(call.at(1));
    const Operation one = library_call("nccl", name, arguments, {}).value();
    if (communications) {
      communications->join(name, arguments, one, &operation);
      continue;
    }
    trace.process.world_size = arguments.world;
    communications.emplace(trace, &step);
    operation = one;
    communications->begin(name, arguments, one);
  }
  const int32_t made = communications.value().end(&operation);
  return {operation_duration(operation, rates_).expected_ns, collective_share(operation, rates_),
          step.communications[static_cast<size_t>(made)].messages.empty()};
}

std::optional<GpuTimeline::Work> LaunchTimes::answer(std::string_view question) {
  ++questions_;
  const std::string_view kind = word(&question);
  if (kind == "operator" || kind == "rest") {
    const std::string_view name = word(&question);
    const int64_t launches = number(&question);
    FirstKernel first;
    read_sizes(&question, &first);
    first.name = word(&question);
    std::optional<Operation> known = operator_operation(name, operator_arguments(Json::parse(question)));
    unknown_questions_ += known && operator_is_known(name) ? 0 : 1;
    if (!known) return std::nullopt;
    known->launches = launches;
    apply_kernel_form(first, &*known);
    if (kind == "rest") {
      *known = launch_of(*known);
      known->launches = launches;
    }
    return work_of(*known);
  }
  if (kind == "ptx") {
    --questions_;
    const std::string code(word(&question));
    counted_.add_code(code, Json::parse(question).get<std::string>());
    return std::nullopt;
  }
  if (kind == "values") {
    --questions_;
    KnownValues& values = values_[number(&question)];
    values.address = static_cast<uint64_t>(number(&question));
    values.bytes = bytes_from_hex(word(&question)).value_or("");
    return std::nullopt;
  }
  if (kind == "code") return answer_code(question);
  if (kind == "kernel") {
    Work work;
    read_sizes(&question, &work);
    if (const std::optional<Operation> known = known_kernel(question, work.grid, work.block)) return work_of(*known);
    ++unknown_questions_;
    return work_of(operation_by_threads(work));
  }
  if (kind == "call") {
    CallSettings settings;
    settings.tf32_products = number(&question) == 1;
    settings.tf32_convolutions = number(&question) == 1;
    const std::string_view library = word(&question), name = word(&question);
    const std::optional<Operation> known = library_call(library, name, call_arguments(Json::parse(question)), settings);
    unknown_questions_ += known ? 0 : 1;
    return work_of(known ? *known : operation_by_threads({}));
  }
  if (kind == "copy" || kind == "fill") {
    Work work;
    work.kind = kind == "copy" ? WorkKind::copy : WorkKind::memset;
    if (kind == "copy") work.copy_kind = number(&question);
    work.size_bytes = number(&question);
    work.pageable = work.kind == WorkKind::copy && number(&question) == 1;
    return work_of(operation_of_copy(work));
  }
  return GpuTimeline::Work{};
}

}  // namespace gpucast
