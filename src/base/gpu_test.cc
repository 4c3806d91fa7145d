#include "gpucast/gpu.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gpucast/error.h"
#include "src/base/gpu_variant.h"
#include "src/occupancy/occupancy_card.h"
#include "src/time/duration.h"

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
    EXPECT_GE(gpu.power_w, 25);
    EXPECT_LE(gpu.power_w, 1400);
    EXPECT_GT(gpu.multiprocessors, 0);
    EXPECT_GT(gpu.total_memory_bytes, 2ULL << 30);
    EXPECT_GE(gpu.l2_bytes, 1U << 20);
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

bool has_note(const Gpu& gpu, const char* field) {
  return std::ranges::any_of(gpu.notes, [&](const std::string& note) { return note.starts_with(field); });
}

// Figures from different sources that must agree: bandwidth is two transfers a clock over the bus. A note says why they do not.
TEST(GpuTable, BandwidthAgreesWithBusAndClock) {
  for (const Gpu& gpu : gpu_table()) {
    const double from_clock = 2.0 * gpu.memory_clock_khz * 1e3 * gpu.memory_bus_width_bits / 8;
    const bool agree = std::abs(from_clock / gpu.bandwidth_bytes_per_s - 1) <= 0.01;
    EXPECT_TRUE(agree || has_note(gpu, "bandwidth_bytes_per_s")) << gpu.id << " " << from_clock;
    EXPECT_NEAR(from_clock / gpu.bandwidth_bytes_per_s, 1, 0.03) << gpu.id;
  }
}

// FLOP of a multiprocessor in a clock, from the architectures' whitepapers: dense, with fp32 accumulation. GeForce cards from Turing on
// have half of the tensor cores' rate. 0: the architecture has no such unit.
double flop_per_clock(const Gpu& gpu, const std::string& type) {
  const int capability = gpu.compute_major * 10 + gpu.compute_minor;
  if (type == "fp32") return capability <= 80 && capability != 61 ? 128 : 256;
  const bool halved = gpu.name.find("GeForce") != std::string::npos || capability == 121;
  double fp16 = 0, int8 = 0;
  if (capability == 70) fp16 = 1024;
  if (capability == 75) fp16 = halved ? 512 : 1024, int8 = 2048;
  if (capability == 80 || capability == 87) fp16 = 2048, int8 = 4096;
  if (capability == 86 || capability == 89 || capability >= 120) fp16 = halved ? 512 : 1024, int8 = 2048;
  if (capability == 90) fp16 = 4096, int8 = 8192;
  if (capability >= 100 && capability <= 110) fp16 = 8192, int8 = 16384;
  if (type == "tf32") return capability >= 80 ? fp16 / 2 : 0;
  if (type == "bf16") return capability >= 80 ? fp16 : 0;
  if (type == "fp8") return capability >= 89 ? 2 * fp16 : 0;
  return type == "int8" ? int8 : fp16;
}

// The datasheet's rates are multiprocessors x clock x FLOP in a clock, to 1 %. A note says where the datasheet rates another clock.
TEST(GpuTable, RatesAgreeWithMultiprocessorsAndClock) {
  for (const Gpu& gpu : gpu_table()) {
    for (const auto& [type, flop_per_s] : gpu.peak_flop_per_s) {
      const double rate = flop_per_clock(gpu, type) * gpu.multiprocessors * gpu.clock_khz * 1e3;
      const bool agree = std::abs(flop_per_s / rate - 1) <= 0.01;
      EXPECT_TRUE(agree || has_note(gpu, "peak_flop_per_s")) << gpu.id << " " << type << " " << flop_per_s << " " << rate;
    }
  }
}

// All parts of gpucast know the card: its occupancy rules, its rates with constants of its architecture.
TEST(GpuTable, EveryCardCanBeUsed) {
  EXPECT_GE(gpu_table().size(), 75U);
  for (const Gpu& gpu : gpu_table()) {
    SCOPED_TRACE(gpu.id);
    EXPECT_NO_THROW(occupancy_card(gpu));
    const CardRates rates = card_rates(gpu);
    EXPECT_GT(rates.step_interval.low, 0);
    EXPECT_LT(rates.step_interval.low, 1);
    EXPECT_GT(rates.step_interval.high, 1);
    EXPECT_TRUE(rates.own_constants || gpu.constants_of.empty());
  }
}

// Estimates widen the interval of step times.
TEST(GpuTable, EstimatesWidenTheInterval) {
  const Gpu& laptop = find_gpu("rtx4090-laptop");
  EXPECT_EQ(laptop.estimated, (std::vector<std::string>{"clock_khz", "power_w"}));
  EXPECT_GT(laptop.spread_high, 1.2);
  EXPECT_EQ(find_gpu("b300").estimated, (std::vector<std::string>{"l2_bytes"}));
  EXPECT_EQ(find_gpu("b300").l2_bytes, find_gpu("b200").l2_bytes);
  EXPECT_EQ(find_gpu("rtx4070ti").spread_high, 1);
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
  EXPECT_EQ(
      gpu_error("V100"),
      "'V100' may be any of several GPUs: v100-16, v100-32, v100-32-pcie, v100-16-pcie, v100s-32-pcie, v100-32-sxm3 | name one of them");
  EXPECT_EQ(find_gpu("a10").id, "a10");  // neither a10g nor a family
}

TEST(FindGpu, UnknownNamesGetASuggestion) {
  EXPECT_EQ(gpu_error("rtx3061"), "no GPU is named 'rtx3061' | did you mean 'rtx3060'? gpucast gpus lists all names");
  EXPECT_EQ(gpu_error("rtx4070tiii"), "no GPU is named 'rtx4070tiii' | did you mean 'rtx4070ti'? gpucast gpus lists all names");
  EXPECT_EQ(gpu_error("rtx3090 Founders"), "no GPU is named 'rtx3090 Founders' | did you mean 'rtx3090'? gpucast gpus lists all names");
  EXPECT_EQ(find_gpu("l40").id, "l40");  // not l40s
  EXPECT_EQ(find_gpu("rtx4070ti").id, "rtx4070ti");
  EXPECT_EQ(gpu_error("rtx4060ti"), "'rtx4060ti' may be any of several GPUs: rtx4060ti-8, rtx4060ti-16 | name one of them");
  EXPECT_EQ(gpu_error("mi300x"), "no GPU is named 'mi300x' | gpucast gpus lists the names");
  EXPECT_EQ(gpu_error(""), "no GPU is named '' | gpucast gpus lists the names");
  EXPECT_EQ(gpu_error("nvidia"), "no GPU is named 'nvidia' | gpucast gpus lists the names");
}

TEST(PowerLimit, FollowsMeasuredRuns) {
  const Gpu &full = find_gpu("rtx4090"), &limited = find_gpu("rtx4090@300W");
  EXPECT_EQ(limited.id, "rtx4090@300W");
  EXPECT_EQ(limited.power_w, 300);
  EXPECT_EQ(limited.total_memory_bytes, full.total_memory_bytes);
  EXPECT_EQ(limited.bandwidth_bytes_per_s, full.bandwidth_bytes_per_s);
  const double slower = static_cast<double>(limited.clock_khz) / full.clock_khz;
  EXPECT_GT(slower, 0.89);  // between the measured speeds at 0.6 and 0.7 of the limit
  EXPECT_LT(slower, 0.94);
  EXPECT_NEAR(limited.peak_flop_per_s.at("fp16") / full.peak_flop_per_s.at("fp16"), slower, 1e-3);
  EXPECT_LT(limited.spread_low, 1);
  EXPECT_GT(limited.spread_high, 1);
  EXPECT_EQ(measured_id(limited), "rtx4090");
  EXPECT_TRUE(card_rates(limited).own_constants);
  EXPECT_EQ(find_gpu("rtx4090@450W").clock_khz, full.clock_khz);
  EXPECT_EQ(find_gpu("4090@180w").id, "rtx4090@180W");  // exactly the least share
  // Slower with each watt less.
  int clock_khz = full.clock_khz;
  for (int watts = 440; watts >= 180; watts -= 20) {
    const int lower = find_gpu("rtx4090@" + std::to_string(watts) + "W").clock_khz;
    EXPECT_LT(lower, clock_khz) << watts;
    clock_khz = lower;
  }
}

TEST(PowerLimit, OtherLimitsAreErrors) {
  EXPECT_EQ(gpu_error("rtx4090@500W"),
            "500 W is above the 450 W of rtx4090 | name at most 450 W: how much a card gains above its limit was not measured");
  EXPECT_EQ(gpu_error("rtx4090@100W"),
            "100 W is 22 % of the 450 W of rtx4090 | name at least 180 W: runs below 40 % of the limit were not measured");
  for (const char* name : {"rtx4090@300", "rtx4090@", "rtx4090@W", "rtx4090@-300W", "rtx4090@nanW"})
    EXPECT_NE(gpu_error(name).find("is neither a power limit nor a MIG slice"), std::string::npos) << name;
  EXPECT_EQ(gpu_error("rtx4099@300W"), "no GPU is named 'rtx4099' | did you mean 'rtx4090'? gpucast gpus lists all names");
}

TEST(MigSlice, IsACardOfItsOwn) {
  const Gpu &whole = find_gpu("a100-80"), &slice = find_gpu("a100-80@3g.40gb");
  EXPECT_EQ(slice.id, "a100-80@3g.40gb");
  EXPECT_EQ(slice.name, "NVIDIA A100-SXM4-80GB MIG 3g.40gb");
  EXPECT_EQ(slice.multiprocessors, 42);
  EXPECT_EQ(slice.bandwidth_bytes_per_s, whole.bandwidth_bytes_per_s / 2);
  EXPECT_FALSE(card_rates(slice).own_constants);
  EXPECT_EQ(find_gpu("h100-80@1g.10gb").multiprocessors, 16);
  EXPECT_EQ(find_gpu("a30@2g.12gb").multiprocessors, 28);
  EXPECT_EQ(gpu_error("rtx4090@1g.5gb"),
            "the NVIDIA GeForce RTX 4090 has no MIG | `gpucast gpus --show NAME` says which slices a card has");
  EXPECT_EQ(gpu_error("a100-80@5g.50gb"), "a100-80 has no slice '5g.50gb' | name one of 1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb");
}

std::string file_answer(const std::string& text) {
  const std::string path = (std::filesystem::temp_directory_path() / ("gpucast_card_" + std::to_string(getpid()) + ".json")).string();
  std::ofstream(path) << text;
  std::string out;
  try {
    out = "read " + read_gpu_file(path).name;
  } catch (const Error& error) {
    out = std::string(error.what()) + " | " + (error.where.starts_with(path) ? error.where.substr(path.size()) : error.where);
  }
  std::remove(path.c_str());
  return out;
}

std::string card_text(const std::string& more) {
  return R"({"name": "NVIDIA GeForce RTX 4075", "compute_capability": "8.9", "multiprocessors": 50,
 "total_memory_mib": 12000, "clock_khz": 2500000,
 "bandwidth_bytes_per_s": 504000000000)" +
         more + "}";
}

TEST(GpuFile, WhatItLeavesOutIsEstimated) {
  EXPECT_EQ(file_answer(card_text("")), "read NVIDIA GeForce RTX 4075");
  const std::string path = (std::filesystem::temp_directory_path() / ("gpucast_own_card_" + std::to_string(getpid()) + ".json")).string();
  std::ofstream(path) << card_text("");
  const Gpu& gpu = find_gpu(path);
  std::remove(path.c_str());
  EXPECT_EQ(gpu.id, path);
  EXPECT_EQ(gpu.constants_of, "rtx4070");  // 46 multiprocessors, the nearest GeForce card of 8.9
  EXPECT_EQ(gpu.total_memory_bytes, 12000ULL << 20);
  EXPECT_EQ(gpu.l2_bytes, find_gpu("rtx4070").l2_bytes);
  EXPECT_NEAR(gpu.peak_flop_per_s.at("fp32"), 256.0 * 50 * 2.5e9, 256.0 * 50 * 2.5e9 * 0.01);
  EXPECT_NEAR(gpu.peak_flop_per_s.at("fp16"), 512.0 * 50 * 2.5e9, 512.0 * 50 * 2.5e9 * 0.01);
  EXPECT_EQ(gpu.estimated, (std::vector<std::string>{"peak_flop_per_s", "l2_bytes", "power_w"}));
  EXPECT_GT(gpu.spread_high, 1.2);
  EXPECT_FALSE(card_rates(gpu).own_constants);
  EXPECT_EQ(&find_gpu(path), &gpu);
}

TEST(GpuFile, ErrorsNameTheField) {
  EXPECT_EQ(file_answer(card_text(",\n \"l2_byte\": 1")), "a card has no field \"l2_byte\" | , line 4, column 2");
  EXPECT_EQ(file_answer(card_text(",\n \"power_w\": -3")), "\"power_w\" is -3, not a number from 1 to 100000 | , line 4, column 2");
  EXPECT_EQ(file_answer(card_text(R"(, "peak_flop_per_s": {"fp16": -1})")),
            "\"fp16\" is -1, not a number from 1000000000 to 1e+18 | , line 3, column 61");
  EXPECT_EQ(file_answer(card_text(R"(, "peak_flop_per_s": {"fp61": 1e12})")), "no rate is named \"fp61\" | , line 3, column 61");
  EXPECT_EQ(file_answer(card_text(",\n \"mig\": \"3g.40gb\"")), "a MIG slice needs the card it is cut from | , line 4, column 2");
  EXPECT_EQ(file_answer(R"({"like": "a100-80", "mig": "3g.41gb"})"), "\"mig\": a100-80 has no slice '3g.41gb' | , line 1, column 21");
  EXPECT_EQ(file_answer(R"({"like": "a100-80", "mig": "3g.40gb"})"), "read NVIDIA A100-SXM4-80GB MIG 3g.40gb");
  EXPECT_EQ(file_answer(R"({"like": "rtx4091"})"), "\"like\": no GPU is named 'rtx4091' | , line 1, column 2");
  EXPECT_EQ(file_answer("{\n \"name\": \"x\",\n}"),
            "the file is not JSON (which has no NaN, no infinity and no comments) | , line 3, column 1");
  EXPECT_EQ(file_answer(R"({"name": "x"})"), "the card has no \"compute_capability\" | ");
  EXPECT_EQ(file_answer(R"({"name": "x", "name": "y"})"), "the key \"name\" is there twice | , line 1, column 2");
  EXPECT_EQ(file_answer(card_text(R"(, "memory_bus_width_bits": 192, "memory_clock_khz": 21000000)")),
            "\"bandwidth_bytes_per_s\" is 5.04e+11, and bus and clock give 1.008e+12 | , line 3, column 2");
  EXPECT_EQ(file_answer("[]"), "a card is one JSON object | ");
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
