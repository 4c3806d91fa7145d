// A step of a million operations on 64 ranks: 4 stages of a pipeline, each on 2 nodes of 8 cards. The answer is checked.

#include <benchmark/benchmark.h>

#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "src/ranks/hand_made_ranks.h"

namespace gpucast {
namespace {

constexpr int64_t kRanks = 64, kTensor = 8, kStages = 4, kMicroBatches = 16;
constexpr double kKernelUs = 10, kTensorUs = 20, kGradientUs = 400, kMessageUs = 5;

std::vector<int64_t> every(int64_t first, int64_t step, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(first + i * step);
  return out;
}

// Rank = stage * 16 + replica * 8 + place in the tensor group. A layer is `kernels` kernels and an all-reduce of its tensor group; the
// backward is two forwards long and reduces gradients during its last micro-batch.
void make_step(HandMadeRank* rank, int64_t number, int64_t layers, int64_t kernels) {
  const int64_t stage = number / 16, in_stage = number % 16;
  const uint32_t tensor = rank->group("tensor " + std::to_string(number / kTensor), every(number / kTensor * kTensor, 1, kTensor));
  const uint32_t pipe = rank->group("pipe " + std::to_string(in_stage), every(in_stage, 16, kStages));
  const uint32_t data =
      rank->group("data " + std::to_string(stage * 8 + number % 8), {stage * 16 + number % 8, stage * 16 + number % 8 + 8});
  const auto message = [&](int64_t peer_stage, bool receives) {
    if (peer_stage < 0 || peer_stage >= kStages) return;
    rank->after(2, 0);
    rank->messages(pipe, {{peer_stage * 16 + in_stage, 1 << 20, receives}}, kMessageUs, 2);
    if (receives) rank->after(0, 2);
  };
  for (const bool backward : {false, true}) {
    for (int64_t micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      message(backward ? stage + 1 : stage - 1, true);
      for (int64_t layer = 0; layer < (backward ? 2 : 1) * layers; ++layer) {
        for (int64_t kernel = 0; kernel < kernels; ++kernel) rank->compute(kKernelUs);
        rank->after(1, 0);
        rank->collective(tensor, kTensorUs, 1, CollectiveKind::all_reduce, 1 << 20, {.multiprocessors = 0.2, .memory = 0.2});
        rank->after(0, 1);
        if (!backward || micro_batch + 1 < kMicroBatches) continue;
        rank->after(3, 0);
        rank->collective(data, kGradientUs / static_cast<double>(2 * layers), 3, CollectiveKind::reduce_scatter, 1 << 20,
                         {.multiprocessors = 0.1, .memory = 0.1}, 2);
      }
      message(backward ? stage - 1 : stage + 1, false);
    }
  }
  for (const uint32_t stream : {2U, 3U}) rank->after(0, stream);
}

void BM_PlayAMillionOperations(benchmark::State& state) {
  constexpr int64_t kLayers = 8, kKernels = 40;
  std::deque<HandMadeRank> ranks;
  std::vector<PlayedRank> played;
  size_t operations = 0;
  for (int64_t number = 0; number < kRanks; ++number) {
    make_step(&ranks.emplace_back(number, 4), number, kLayers, kKernels);
    played.push_back(ranks.back().played());
    operations += ranks.back().step().operations.size();
  }
  const double micro_batch_us = 3 * kLayers * (kKernels * kKernelUs + kTensorUs);
  const double expected_ns = (kMicroBatches + kStages - 1) * micro_batch_us * kUsNs;
  for (auto _ : state) {
    const JobTime job = play(played, free_host());
    if (operations < 1'000'000 || std::abs(job.step_ns / expected_ns - 1) > 0.01) state.SkipWithError("wrong answer");
    state.counters["step_over_expected"] = job.step_ns / expected_ns;
  }
  state.counters["operations"] = static_cast<double>(operations);
}
BENCHMARK(BM_PlayAMillionOperations)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gpucast
