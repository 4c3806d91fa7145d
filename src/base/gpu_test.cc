#include "gpucast/gpu.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "gpucast/error.h"

namespace gpucast {
namespace {

std::string gpu_error(const std::string& name) {
  try {
    return "found " + find_gpu(name).id;
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint;
  }
}

TEST(GpuTable, EveryRowIsComplete) {
  std::set<std::string> ids, names;
  for (const Gpu& gpu : gpu_table()) {
    SCOPED_TRACE(gpu.id);
    EXPECT_TRUE(ids.insert(gpu.id).second);
    EXPECT_TRUE(names.insert(gpu.name).second);
    EXPECT_FALSE(gpu.architecture.empty());
    EXPECT_GE(gpu.compute_major, 6);
    EXPECT_GE(gpu.power_w, 50);
    EXPECT_LE(gpu.power_w, 1000);
    EXPECT_GT(gpu.multiprocessors, 0);
    EXPECT_GT(gpu.total_memory_bytes, 7ULL << 30);
    EXPECT_GT(gpu.l2_bytes, 1U << 20);
    EXPECT_EQ(gpu.shared_memory_per_block_bytes, 48 * 1024);
    // A block can use at most the multiprocessor's shared memory, minus 1 KiB that the system keeps since capability 8.0. Before 7.0 the
    // limit is 48 KiB.
    if (gpu.compute_major >= 7) {
      EXPECT_EQ(gpu.shared_memory_per_multiprocessor_bytes - gpu.shared_memory_per_block_optin_bytes, gpu.compute_major >= 8 ? 1024 : 0);
    }
    EXPECT_EQ(gpu.registers_per_multiprocessor, 65536);
    EXPECT_EQ(gpu.max_threads_per_multiprocessor % 32, 0);
    EXPECT_GE(gpu.sources.size(), 3U);
    bool total_has_source = false;
    for (const std::string& source : gpu.sources) total_has_source |= source.find("total memory") != std::string::npos;
    EXPECT_TRUE(total_has_source);
  }
}

// Figures from different sources that must agree: bandwidth is two transfers a clock over the bus.
TEST(GpuTable, BandwidthAgreesWithBusAndClock) {
  for (const Gpu& gpu : gpu_table()) {
    const double from_clock = 2.0 * gpu.memory_clock_khz * 1e3 * gpu.memory_bus_width_bits / 8;
    EXPECT_NEAR(from_clock / gpu.bandwidth_bytes_per_s, 1.0, 0.03) << gpu.id;
  }
}

// fp32 is cores x clock x 2; 64 cores a multiprocessor until capability 8.0 (128 in 6.1), 128 after (the sheets of A10G, P4 and P100 PCIe
// rate them at a lower clock).
TEST(GpuTable, Fp32RateAgreesWithCoresAndClock) {
  for (const Gpu& gpu : gpu_table()) {
    const int capability = gpu.compute_major * 10 + gpu.compute_minor;
    const int cores = capability <= 80 && capability != 61 ? 64 : 128;
    const double rate = 2.0 * cores * gpu.multiprocessors * gpu.clock_khz * 1e3;
    EXPECT_NEAR(gpu.peak_flop_per_s.at("fp32") / rate, 1.0, gpu.id == "a10g" ? 0.11 : gpu.compute_major == 6 ? 0.04 : 0.02) << gpu.id;
  }
}

TEST(GpuTable, MeasuredTotals) {
  EXPECT_EQ(find_gpu("rtx3060").total_memory_bytes, 12622168064U);
  EXPECT_EQ(find_gpu("rtx4060").total_memory_bytes, 8318222336U);
  EXPECT_EQ(find_gpu("a100-40").total_memory_bytes, 42474471424U);
  EXPECT_TRUE(find_gpu("rtx3060").total_memory_measured);
}

TEST(GpuTable, UnitsFollowTheArchitecture) {
  for (const Gpu& gpu : gpu_table()) {
    const int capability = gpu.compute_major * 10 + gpu.compute_minor;
    EXPECT_EQ(gpu.peak_flop_per_s.count("bf16"), capability >= 80 ? 1U : 0U) << gpu.id;
    EXPECT_EQ(gpu.peak_flop_per_s.count("fp8"), capability >= 89 ? 1U : 0U) << gpu.id;
  }
}

TEST(FindGpu, SpellingDoesNotMatter) {
  for (const char* name : {"rtx3060", "RTX 3060", "rtx-3060", "NVIDIA GeForce RTX 3060", "GeForce_RTX_3060", "3060"}) {
    EXPECT_EQ(find_gpu(name).id, "rtx3060") << name;
  }
  EXPECT_EQ(find_gpu("A100-SXM4-80GB").id, "a100-80");
  EXPECT_EQ(find_gpu("a100 80gb").id, "a100-80");
  EXPECT_EQ(find_gpu("A100 80GB PCIe").id, "a100-80-pcie");
  EXPECT_EQ(find_gpu("Tesla T4").id, "t4");
  EXPECT_EQ(find_gpu("NVIDIA H100 PCIe").id, "h100-80-pcie");
  EXPECT_EQ(find_gpu("NVIDIA RTX 6000 Ada Generation").id, "rtx6000ada");
  for (const Gpu& gpu : gpu_table()) {
    EXPECT_EQ(find_gpu(gpu.id).id, gpu.id);
    EXPECT_EQ(find_gpu(gpu.name).id, gpu.id);
  }
}

TEST(FindGpu, AFamilyIsNotACard) {
  EXPECT_EQ(gpu_error("a100"), "'a100' may be any of several GPUs: a100-40, a100-40-pcie, a100-80, a100-80-pcie | name one of them");
  EXPECT_EQ(gpu_error("V100"), "'V100' may be any of several GPUs: v100-16, v100-32, v100-32-pcie | name one of them");
  EXPECT_EQ(find_gpu("a10").id, "a10");  // neither a10g nor a family
}

TEST(FindGpu, UnknownNamesGetASuggestion) {
  EXPECT_EQ(gpu_error("rtx3061"), "no GPU is named 'rtx3061' | did you mean 'rtx3060'? gpucast gpus lists all names");
  EXPECT_EQ(gpu_error("l40"), "no GPU is named 'l40' | did you mean 'l40s'? gpucast gpus lists all names");
  EXPECT_EQ(gpu_error("mi300x"), "no GPU is named 'mi300x' | gpucast gpus lists the names");
  EXPECT_EQ(gpu_error(""), "no GPU is named '' | gpucast gpus lists the names");
  EXPECT_EQ(gpu_error("nvidia"), "no GPU is named 'nvidia' | gpucast gpus lists the names");
}

TEST(DidYouMean, NearestWithinAThird) {
  const std::vector<std::string> words = {"run", "analyze", "gpus", "doctor"};
  EXPECT_EQ(did_you_mean("analyse", words), "analyze");
  EXPECT_EQ(did_you_mean("docotr", words), "doctor");  // two swapped letters count as one edit
  EXPECT_EQ(did_you_mean("GPUS", words), "gpus");
  EXPECT_EQ(did_you_mean("ran", words), "run");
  EXPECT_EQ(did_you_mean("replay", words), std::nullopt);
  EXPECT_EQ(did_you_mean("", words), std::nullopt);
}

}  // namespace
}  // namespace gpucast
