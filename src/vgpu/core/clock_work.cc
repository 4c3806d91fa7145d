// How long launches, calls, copies and fills take. The server gets one question for each kind.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/clock_state.h"

namespace gpucast::vgpu {
namespace {

constexpr double kUnknownNs = 5000;  // a launch with an unknown duration

uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

// "12345.6 0 0.9": duration, engine, demand.
GpuTimeline::Work parse_answer(const std::string& answer) {
  GpuTimeline::Work work;
  int engine = 0;
  if (std::sscanf(answer.c_str(), "%lf %d %lf", &work.duration_ns, &engine, &work.demand) != 3 || !(work.duration_ns >= 0) || engine < 0 ||
      engine >= static_cast<int>(Engine::count_))
    return {kUnknownNs, Engine::compute, 1, 0};
  work.engine = static_cast<Engine>(engine);
  return work;
}

// The work stored under this hash, or else the server's answer to `question`.
template <class Question>
KnownWork ask_once(Clock& clock, uint64_t hash, const char* name, const Question& question) {
  const ClockLock lock(clock.mutex);
  const auto found = clock.known_work.find(hash);
  if (found != clock.known_work.end()) return found->second;
  const KnownWork asked{parse_answer(clock.ask(question())), clock.names.emplace(name).first->c_str()};
  clock.known_work.emplace(hash, asked);
  return asked;
}

}  // namespace

ClockWork clock_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                       const KernelResources& resources) {
  uint64_t hash = std::hash<std::string_view>{}(name);
  for (int i = 0; i < 3; ++i) hash = mix_hash(hash, uint64_t{grid[i]} << 32 | block[i]);
  hash = mix_hash(hash, dynamic_shared_bytes);
  const KnownWork known = ask_once(*run_clock(), hash, name, [&] {
    char sizes[128];
    std::snprintf(sizes, sizeof sizes, "kernel %u %u %u %u %u %u %zu ", grid[0], grid[1], grid[2], block[0], block[1], block[2],
                  dynamic_shared_bytes);
    return std::string(sizes) + name;
  });
  ClockWork out{known.work, {}};
  Activity& a = out.activity;
  a.kind = ActivityKind::kernel;
  a.name = known.name;
  std::copy_n(grid, 3, a.grid);
  std::copy_n(block, 3, a.block);
  a.dynamic_shared_bytes = dynamic_shared_bytes;
  a.registers = static_cast<int>(resources.registers);
  a.static_shared_bytes = static_cast<size_t>(resources.static_shared_bytes);
  a.local_bytes = static_cast<size_t>(resources.local_bytes);
  return out;
}

ClockWork clock_call(const char* library, const char* name, std::string_view arguments_json) {
  uint64_t hash = std::hash<std::string_view>{}(arguments_json);
  hash = mix_hash(mix_hash(hash, std::hash<std::string_view>{}(name)), std::hash<std::string_view>{}(library));
  const KnownWork known = ask_once(*run_clock(), hash, name, [&] {
    return "call " + std::string(library) + ' ' + name + ' ' + std::string(arguments_json.empty() ? "{}" : arguments_json);
  });
  ClockWork out{known.work, {}};
  out.activity.kind = ActivityKind::kernel;
  out.activity.name = known.name;
  // The kernels' shape is not known. The record gets one block for each multiprocessor that they keep busy.
  std::fill_n(out.activity.grid, 3, 1);
  std::fill_n(out.activity.block, 3, 1);
  out.activity.grid[0] = static_cast<unsigned>(std::max(1L, std::lround(known.work.demand * profile().multiprocessors)));
  return out;
}

ClockWork clock_copy(int kind, size_t size_bytes, bool pageable) {
  const uint64_t hash = mix_hash(mix_hash(mix_hash(0xc0b1, static_cast<uint64_t>(kind)), size_bytes), pageable ? 1 : 0);
  const KnownWork known = ask_once(*run_clock(), hash, "memcpy", [&] {
    return "copy " + std::to_string(kind) + ' ' + std::to_string(size_bytes) + (pageable ? " 1" : " 0");
  });
  ClockWork out{known.work, {}};
  out.activity.kind = ActivityKind::copy;
  out.activity.name = known.name;
  out.activity.copy_kind = kind;
  out.activity.size_bytes = size_bytes;
  return out;
}

ClockWork clock_fill(size_t size_bytes) {
  const KnownWork known =
      ask_once(*run_clock(), mix_hash(0xf111, size_bytes), "memset", [&] { return "fill " + std::to_string(size_bytes); });
  ClockWork out{known.work, {}};
  out.activity.kind = ActivityKind::fill;
  out.activity.name = known.name;
  out.activity.size_bytes = size_bytes;
  return out;
}

}  // namespace gpucast::vgpu
