// Measures how fast a history is replayed: training-like requests of 100,000 to 10 million events, or GPUCAST_BENCH_EVENTS=FILE. Checks its
// results too. bench/replay_speed.py compares it with PyTorch's own allocator.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "gpucast/replay.h"

namespace gpucast {
namespace {

struct Made {
  History history;
  int64_t live_requested_bytes = 0;  // at the end
};

// About 300 blocks in use, of 200 different sizes between 512 B and 64 MiB. Most frees are of recently allocated blocks.
Made make_history(int64_t events) {
  Made made;
  made.history.streams = {0};
  std::mt19937_64 random(1);
  std::vector<int64_t> sizes(200);
  for (int64_t& size : sizes) size = static_cast<int64_t>(std::exp2(std::uniform_real_distribution<>(9, 26)(random)));
  std::vector<std::pair<uint32_t, int64_t>> live;
  while (static_cast<int64_t>(made.history.ops.size()) < events) {
    AllocOp op;
    if (live.empty() || random() % 100 < (live.size() < 300 ? 60 : 40)) {
      op.kind = OpKind::alloc;
      op.id = made.history.id_count++;
      op.size_bytes = sizes[random() % sizes.size()];
      live.emplace_back(op.id, op.size_bytes);
      made.live_requested_bytes += op.size_bytes;
    } else {
      const size_t recent = random() % std::min<size_t>(live.size(), 8);
      std::swap(random() % 4 != 0 ? live[live.size() - 1 - recent] : live[random() % live.size()], live.back());
      op.kind = OpKind::free;
      op.id = live.back().first;
      made.live_requested_bytes -= live.back().second;
      live.pop_back();
    }
    made.history.ops.push_back(op);
  }
  return made;
}

void BM_Replay(benchmark::State& state) {
  const Made made = make_history(state.range(0));
  for (auto _ : state) {
    const ReplayResult result = replay(made.history, {});
    if (result.stats.requested_bytes != made.live_requested_bytes || result.first_oom) state.SkipWithError("wrong answer");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Replay)->Arg(100'000)->Arg(1'000'000)->Arg(10'000'000)->Unit(benchmark::kMillisecond);

void BM_ReplayFile(benchmark::State& state) {
  const char* path = std::getenv("GPUCAST_BENCH_EVENTS");
  if (path == nullptr) {
    state.SkipWithError("no GPUCAST_BENCH_EVENTS");
    return;
  }
  const History history = read_events(path);
  ReplaySettings settings;
  settings.addresses = AddressPolicy::ascending;
  ReplayResult result;
  for (auto _ : state) result = replay(history, settings);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(history.ops.size()));
  state.counters["peak_reserved_bytes"] = static_cast<double>(result.stats.peak_reserved_bytes);
  state.counters["peak_allocated_bytes"] = static_cast<double>(result.stats.peak_allocated_bytes);
}
BENCHMARK(BM_ReplayFile)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gpucast
