// Measures events a second on one core, for 64 to 2000 cards that are 90 % full. It checks the results, too.

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "src/pack/simulate.h"

namespace gpucast::pack {
namespace {

// Each card has about 1.8 jobs at a time, each of half a minute to ten minutes.
std::vector<Job> jobs_of(int64_t count, int cards) {
  std::mt19937_64 random(1);
  std::vector<Job> out(static_cast<size_t>(count));
  double arrival_ns = 0;
  for (Job& job : out) {
    arrival_ns += std::exponential_distribution<double>(static_cast<double>(cards) * 1.6 / 3.15e11)(random);
    job.arrival_ns = static_cast<int64_t>(arrival_ns);
    job.steps = std::uniform_int_distribution<int64_t>(300, 6000)(random);
    job.figures = {
        1e8, std::uniform_int_distribution<int64_t>(1, 12)(random) << 30, 0.1 + 0.05 * static_cast<double>(random() % 9), 0.5, 0.5, {}};
  }
  return out;
}

void pack_all(benchmark::State& state, const Policy& policy) {
  const auto cards = static_cast<int>(state.range(1));
  const std::vector<Job> jobs = jobs_of(state.range(0) / 2, cards);
  const Cluster cluster = parse_cluster(std::to_string(cards) + "xp40", SharingMode::mps);
  PackOptions options;
  options.policy = &policy;
  int64_t events = 0;
  for (auto _ : state) {
    const Plan plan = simulate(jobs, cluster, options);
    events += plan.events;
    if (plan.finished != static_cast<int64_t>(jobs.size())) state.SkipWithError("jobs are missing");
    if (policy.sees_memory && plan.out_of_memory_runs > 0) state.SkipWithError("out of memory");
    int64_t most = 0;
    for (const CardUse& use : plan.cards) most = std::max(most, use.most_bytes);
    if (most > static_cast<int64_t>(cluster.types.front().total_memory_bytes)) state.SkipWithError("a card above its memory");
    state.counters["busy"] = plan.utilization;
  }
  state.counters["events/s"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}

void BM_PackSlot(benchmark::State& state) { pack_all(state, kSlotPolicy); }
void BM_PackOccupancy(benchmark::State& state) { pack_all(state, kOccupancyPolicy); }
void BM_PackMemory(benchmark::State& state) { pack_all(state, kMemoryPolicy); }
void BM_PackGpucast(benchmark::State& state) { pack_all(state, kGpucastPolicy); }
#define SIZES ->Args({10'000, 64})->Args({100'000, 64})->Args({1'000'000, 64})->Args({1'000'000, 2000})->Unit(benchmark::kMillisecond)
BENCHMARK(BM_PackSlot) SIZES;
BENCHMARK(BM_PackOccupancy) SIZES->Args({10'000'000, 2000});
BENCHMARK(BM_PackMemory) SIZES;
BENCHMARK(BM_PackGpucast) SIZES->Args({10'000'000, 2000});

}  // namespace
}  // namespace gpucast::pack
