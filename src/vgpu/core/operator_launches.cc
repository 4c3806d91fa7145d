#include "src/vgpu/core/operator_launches.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/kernels/known_kernels.h"
#include "src/vgpu/core/clock.h"
#include "src/vgpu/core/clock_state.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/running_operators.h"
#include "src/vgpu/core/stream_capture.h"

namespace gpucast::vgpu {
namespace {

struct Launch {
  ClockWork work;  // without its duration
  uint64_t stream;
  bool captured;  // into a graph
  ClockIssue issue;
};

// The launches of the operator call `call`.
struct Held {
  uint64_t call = 0;
  std::string written;
  std::vector<Launch> launches;
};

// The last calls that were timed. After a copy or a fill between an operator's kernels, the rest of them are launches.
thread_local std::array<uint64_t, 8> t_timed = {};
thread_local size_t t_next_timed = 0;

bool was_timed(uint64_t call) {
  if (std::find(t_timed.begin(), t_timed.end(), call) != t_timed.end()) return true;
  t_timed[t_next_timed++ % t_timed.size()] = call;
  return false;
}

thread_local Held* t_held = nullptr;  // only while something is held: it needs no end of the thread

double threads_of(const Activity& launch) {
  double out = 1;
  for (int i = 0; i < 3; ++i) out *= std::max(1U, launch.grid[i]) * static_cast<double>(std::max(1U, launch.block[i]));
  return out;
}

bool is_captured(uint64_t stream) {
  CaptureInfo info;
  return capture_info(stream, &info) == kSuccess && info.status != kCaptureNone;
}

}  // namespace

void submit_held_launches() {
  if (t_held == nullptr) return;
  const std::unique_ptr<Held> held(std::exchange(t_held, nullptr));
  const std::optional<GpuTimeline::Work> whole =
      clock_operator(held->written, held->launches.front().work.activity, held->launches.size(), was_timed(held->call));
  double threads = 0;
  for (const Launch& launch : held->launches) threads += threads_of(launch.work.activity);
  for (Launch& launch : held->launches) {
    if (whole) {
      launch.work.work = *whole;
      launch.work.work.duration_ns *= threads_of(launch.work.activity) / threads;
    } else {
      launch.work.work = clock_kernel_by_threads(launch.work.activity);
    }
    if (!launch.captured) {
      clock_enter(launch.work, launch.issue);
    } else {
      capture_node(launch.stream, kGraphNodeKernel, {}, &launch.work);
    }
  }
}

void clock_launch(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes, uint64_t stream,
                  const KernelResources& resources, const CompiledLaunch& compiled, bool driver, const void* function) {
  const char* const api = driver ? "cuLaunchKernel" : "cudaLaunchKernel";
  ClockWork work = clock_kernel(name, grid, block, dynamic_shared_bytes, resources);
  work.activity.function = function;
  // A compiled kernel's time follows from its own code and arguments, a known kernel's from its grid, whatever operator they run in.
  const bool of_operator = compiled.pointers.empty() && compiled.code == nullptr && !is_known_kernel(name);
  const RunningOperator inside = of_operator ? running_operator() : RunningOperator{};
  if (inside.call == 0) {
    const auto counted = compiled.code != nullptr ? clock_code(work.activity, compiled) : std::nullopt;
    work.work = counted ? *counted : clock_kernel_by_threads(work.activity);
    clock_work(work, stream, kGraphNodeKernel, api, driver);
    return;
  }
  if (t_held != nullptr && t_held->call != inside.call) submit_held_launches();
  if (t_held == nullptr) t_held = new Held{inside.call, std::string(inside.written), {}};
  const bool captured = is_captured(stream);
  t_held->launches.push_back({work, stream, captured, captured ? ClockIssue{} : clock_issue(stream, api, driver)});
}

}  // namespace gpucast::vgpu
