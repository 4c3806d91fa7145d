// A capture with a million allocator events, from the file to the prediction. The benchmark checks the result, too.

#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gpucast/predict.h"
#include "src/base/bytes.h"

namespace gpucast {
namespace {

constexpr int kSlots = 2000, kEvents = 1'000'000;

// Slots of 5 MiB, four in a segment, allocated and freed in turn; a mark every ten allocations.
std::string write_capture() {
  const std::string path = std::filesystem::temp_directory_path() / fmt::format("predict_bench.{}.gpucast", getpid());
  gzFile file = gzopen(path.c_str(), "wb1");
  const auto line = [&](const std::string& text) { gzwrite(file, (text + "\n").data(), static_cast<unsigned>(text.size() + 1)); };
  line(R"({"record":"header","schema_version":1,"source":"vgpu","gpu":{"id":"a100-80"},"gpu_chosen":true})");
  line(R"({"record":"process","torch":"2.14.1","cuda":"13.0","alloc_conf":""})");
  const int64_t base = int64_t{0x7f} << 40;
  for (int i = 0; i < kSlots; i += 4) line(fmt::format("[\"segment_alloc\", {}, {}, 0, -1, 1]", base + i * 5 * kMiB, 20 * kMiB));
  std::vector<bool> used(kSlots);
  int64_t lines = 2 + kSlots / 4, allocs = 0, frees = 0;
  for (int64_t event = kSlots / 4, turn = 0; event < kEvents; ++turn) {
    const auto slot = static_cast<size_t>(turn % kSlots);
    const int64_t address = base + static_cast<int64_t>(slot) * 5 * kMiB;
    if (used[slot]) {
      line(fmt::format("[\"free_requested\", {}, {}, 0, 7, {}]", address, 5 * kMiB - 7, event));
      line(fmt::format("[\"free_completed\", {}, {}, 0, 7, {}]", address, 5 * kMiB - 7, event));
      ++frees, event += 2, lines += 2;
    }
    line(fmt::format("[\"alloc\", {}, {}, 0, 7, {}]", address, 5 * kMiB - 7, event));
    used[slot] = true;
    ++allocs, ++event, ++lines;
    if (turn % 10 == 0) line(fmt::format("[\"mark\", {}, {}, {}, {}, \"stats_reset\", \"\"]", turn, allocs, frees, event)), ++lines;
  }
  line(fmt::format("{{\"record\":\"eof\",\"lines\":{}}}", lines));
  gzclose(file);
  return path;
}

void BM_PredictMillionEvents(benchmark::State& state) {
  const std::string path = write_capture();
  for (auto _ : state) {
    const Prediction prediction = predict(read_trace(path), std::nullopt);
    if (prediction.events < kEvents || prediction.peak_allocated.bytes != kSlots * 5 * kMiB) state.SkipWithError("wrong answer");
  }
  std::filesystem::remove(path);
}
BENCHMARK(BM_PredictMillionEvents)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gpucast
