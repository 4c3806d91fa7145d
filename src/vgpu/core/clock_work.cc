// How long launches, calls, copies and fills take. The server gets one question for each kind.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/hex.h"
#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/clock_state.h"
#include "src/vgpu/core/hashing.h"
#include "src/vgpu/core/launch_values.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/running_operators.h"

namespace gpucast::vgpu {
namespace {

constexpr double kUnknownNs = 5000;  // a launch with an unknown duration

// "12345.6 0 0.9 321.0 0 1": duration, engine, demand, how much longer with a swept L2, whether it sweeps L2, whether memory limits it.
// The last two may be missing: 0.
// "none": the question has no answer.
std::optional<GpuTimeline::Work> parse_answer(const std::string& answer) {
  if (answer.starts_with("none")) return std::nullopt;
  GpuTimeline::Work work;
  int engine = 0, sweeps = 0, memory = 0;
  if (std::sscanf(answer.c_str(), "%lf %d %lf %lf %d %d", &work.duration_ns, &engine, &work.demand, &work.cold_ns, &sweeps, &memory) < 3 ||
      !(work.duration_ns >= 0) || engine < 0 || engine >= static_cast<int>(Engine::count_))
    return GpuTimeline::Work{.duration_ns = kUnknownNs};
  work.engine = static_cast<Engine>(engine);
  work.sweeps_l2 = sweeps != 0;
  work.limited_by_memory = memory != 0;
  return work;
}

// "12345.6 0.1 1 0.05 4194304 1": duration, multiprocessors, these while bytes move, memory, buffered bytes, whether all ranks of the group
// meet.
KnownCommunication parse_communication(const std::string& answer) {
  KnownCommunication out;
  long long buffered_bytes = 0;
  int meets_all = 1;
  if (std::sscanf(answer.c_str(), "%lf %lf %lf %lf %lld %d", &out.duration_ns, &out.multiprocessors, &out.moving, &out.memory,
                  &buffered_bytes, &meets_all) != 6 ||
      !(out.duration_ns >= 0))
    return {.duration_ns = kUnknownNs};
  out.buffered_bytes = buffered_bytes;
  out.meets_all = meets_all != 0;
  return out;
}

// 0: not known.
int64_t ranks_of_node() {
  const char* const text = std::getenv("LOCAL_WORLD_SIZE");
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

// With the clock's lock held. The host's time stands still meanwhile.
std::string ask(Clock& clock, const std::string& question) {
  const int64_t begin_ns = machine_ns(CLOCK_MONOTONIC);
  std::string answer = clock.ask(question);
  host_was_interrupted(clock.host, machine_ns(CLOCK_MONOTONIC) - begin_ns);
  return answer;
}

// The answer stored under this hash, or else the server's answer to `question`.
template <class Question>
std::optional<GpuTimeline::Work> ask_once(Clock& clock, uint64_t hash, const Question& question) {
  const ClockLock lock(clock.mutex);
  const auto found = clock.known_work.find(hash);
  if (found != clock.known_work.end()) return found->second;
  return clock.known_work.emplace(hash, parse_answer(ask(clock, question()))).first->second;
}

const char* kept_name(Clock& clock, const char* name) {
  const ClockLock lock(clock.mutex);
  const auto found = clock.names.find(std::string_view(name));
  return (found != clock.names.end() ? found : clock.names.emplace(name).first)->c_str();
}

// The shape of a library's kernels is not known. The record gets one block for each multiprocessor of the card's `part` that they keep
// busy.
Activity library_activity(Clock& clock, const char* name, double part) {
  Activity out{};
  out.kind = ActivityKind::kernel;
  out.name = kept_name(clock, name);
  std::fill_n(out.grid, 3, 1);
  std::fill_n(out.block, 3, 1);
  out.grid[0] = static_cast<unsigned>(std::max(1L, std::lround(part * profile().multiprocessors)));
  return out;
}

uint64_t hash_of(const Activity& launch) { return launch_hash(launch.name, launch.grid, launch.block); }

// " 1 1 1 128 1 1": grid and block.
std::string sizes_text(const Activity& launch) {
  std::string out;
  for (const unsigned size : launch.grid) out += ' ' + std::to_string(size);
  for (const unsigned size : launch.block) out += ' ' + std::to_string(size);
  return out;
}

std::atomic<int> g_tf32{0};  // 1: products, 2: convolutions

}  // namespace

ClockWork clock_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                       const KernelResources& resources) {
  ClockWork out{};
  Activity& a = out.activity;
  a.kind = ActivityKind::kernel;
  a.name = kept_name(*run_clock(), name);
  std::copy_n(grid, 3, a.grid);
  std::copy_n(block, 3, a.block);
  a.dynamic_shared_bytes = dynamic_shared_bytes;
  a.registers = static_cast<int>(resources.registers);
  a.static_shared_bytes = static_cast<size_t>(resources.static_shared_bytes);
  a.local_bytes = static_cast<size_t>(resources.local_bytes);
  return out;
}

GpuTimeline::Work clock_kernel_by_threads(const Activity& launch) {
  const auto known = ask_once(*run_clock(), hash_of(launch), [&] { return "kernel" + sizes_text(launch) + ' ' + launch.name; });
  return known.value_or(GpuTimeline::Work{.duration_ns = kUnknownNs});
}

std::optional<GpuTimeline::Work> clock_code(const Activity& launch, const CompiledLaunch& compiled) {
  Clock& clock = *run_clock();
  const uint64_t code = compiled.code->hash;
  {
    const ClockLock lock(clock.mutex);
    if (clock.sent_codes.insert(code).second) {
      std::string line = "ptx " + std::to_string(code) + ' ';
      append_json_string(line, compiled.code->ptx);
      (void)ask(clock, line);
    }
    for (const LaunchValuesRef& one : compiled.values) {
      if (!clock.sent_values.insert(one->id).second) continue;
      std::string line = "values " + std::to_string(one->id) + ' ' + std::to_string(one->address) + ' ';
      append_hex(one->bytes, &line);
      (void)ask(clock, line);
    }
  }
  return ask_once(clock, compiled_hash(hash_of(launch), launch.dynamic_shared_bytes, compiled), [&] {
    std::string question = "code " + std::to_string(code) + sizes_text(launch);
    for (const size_t number :
         {launch.dynamic_shared_bytes, static_cast<size_t>(launch.registers), launch.static_shared_bytes, launch.local_bytes})
      question += ' ' + std::to_string(number);
    append_hex(compiled.parameters, &(question += ' '));
    question += ' ' + std::to_string(compiled.values.size());
    for (const LaunchValuesRef& one : compiled.values) question += ' ' + std::to_string(one->id);
    return question + ' ' + launch.name;
  });
}

std::optional<GpuTimeline::Work> clock_operator(std::string_view written, const Activity& first, size_t launches, bool begun) {
  const uint64_t hash = mix_hash(mix_hash(hash_of(first), 2 * launches + (begun ? 1 : 0)), std::hash<std::string_view>{}(written));
  return ask_once(*run_clock(), hash, [&] {
    std::string text = operator_text(written);
    text.insert(text.find(' '), ' ' + std::to_string(launches) + sizes_text(first) + ' ' + first.name);
    return (begun ? "rest " : "operator ") + text;
  });
}

ClockWork clock_call(const char* library, const char* name, std::string_view arguments_json) {
  uint64_t hash = std::hash<std::string_view>{}(arguments_json);
  hash = mix_hash(mix_hash(hash, std::hash<std::string_view>{}(name)), std::hash<std::string_view>{}(library));
  const int tf32 = g_tf32.load(std::memory_order_relaxed);
  hash = mix_hash(hash, static_cast<uint64_t>(tf32));
  const auto known = ask_once(*run_clock(), hash, [&] {
    return std::string("call ") + ((tf32 & 1) != 0 ? "1 " : "0 ") + ((tf32 & 2) != 0 ? "1 " : "0 ") + library + ' ' + name + ' ' +
           std::string(arguments_json.empty() ? "{}" : arguments_json);
  });
  ClockWork out{known.value_or(GpuTimeline::Work{}), {}, nullptr};
  out.activity = library_activity(*run_clock(), name, out.work.demand);
  return out;
}

ClockWork clock_communication(const char* name, const std::string& calls_json, RankWork ranks) {
  Clock& clock = *run_clock();
  const KnownCommunication known = [&] {
    const ClockLock lock(clock.mutex);
    const auto [found, added] = clock.known_communication.try_emplace(std::hash<std::string>{}(calls_json));
    if (added)
      found->second = parse_communication(
          ask(clock, "nccl " + std::to_string(ranks_of_node()) + ' ' + std::to_string(ranks.board->rank()) + ' ' + calls_json));
    return found->second;
  }();
  if (known.meets_all) ranks.messages.clear();
  ranks.duration_ns = known.duration_ns;
  ranks.multiprocessors = known.multiprocessors;
  ranks.moving = known.moving;
  ranks.memory = known.memory;
  ranks.buffered_bytes = known.buffered_bytes;
  return {{}, library_activity(clock, name, known.multiprocessors), std::make_shared<const RankWork>(std::move(ranks))};
}

ClockWork clock_copy(int kind, size_t size_bytes, bool pageable) {
  const uint64_t hash = mix_hash(mix_hash(mix_hash(0xc0b1, static_cast<uint64_t>(kind)), size_bytes), pageable ? 1 : 0);
  const auto known = ask_once(*run_clock(), hash,
                              [&] { return "copy " + std::to_string(kind) + ' ' + std::to_string(size_bytes) + (pageable ? " 1" : " 0"); });
  ClockWork out{known.value_or(GpuTimeline::Work{}), {}, nullptr};
  out.activity.kind = ActivityKind::copy;
  out.activity.name = "memcpy";
  out.activity.copy_kind = kind;
  out.activity.size_bytes = size_bytes;
  return out;
}

ClockWork clock_fill(size_t size_bytes) {
  const auto known = ask_once(*run_clock(), mix_hash(0xf111, size_bytes), [&] { return "fill " + std::to_string(size_bytes); });
  ClockWork out{known.value_or(GpuTimeline::Work{}), {}, nullptr};
  out.activity.kind = ActivityKind::fill;
  out.activity.name = "memset";
  out.activity.size_bytes = size_bytes;
  return out;
}

}  // namespace gpucast::vgpu

void gpucast_vgpu_allow_tf32(int products, int convolutions) {
  gpucast::vgpu::g_tf32 = (products != 0 ? 1 : 0) | (convolutions != 0 ? 2 : 0);
}
