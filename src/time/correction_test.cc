#include "src/time/correction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "gpucast/error.h"
#include "src/time/card_rates.h"
#include "src/time/duration.h"

namespace gpucast {
namespace {

std::string file_with(const std::string& tree, const std::string& more = R"("kind": "gemm", "batched": false)",
                      const std::string& ranges = R"({"m": [3, 10]})") {
  return R"({"schema_version": 1, "corrections": [{"source": "a test", )" + more + R"(, "precisions": ["fp16", "bf16"], "cards": ["h200"],
            "low": 0.9, "high": 1.2, "ranges": )" +
         ranges + R"(, "trees": [")" + tree + R"(", "0.5"]}]})";
}

Operation linear(int64_t m, int64_t n, int64_t k, Precision precision = Precision::bf16) {
  Operation out;
  out.kind = OperationKind::gemm;
  out.precision = precision;
  out.element_bytes = 2;
  out.gemm = {1, m, n, k, false, true};
  out.bytes_read = 2 * (m * k + k * n);
  out.bytes_written = 2 * m * n;
  out.flops = 2.0 * static_cast<double>(m * n * k);
  return out;
}

TEST(Correction, AddsTheLeavesOfItsTrees) {
  // m up to 2^7: 0.1; more: by n, up to 2^8.5 -0.2, more 0.3. The second tree is one leaf.
  const std::vector<Correction> corrections = read_corrections(file_with("m7 0.1 n8.5 -0.2 0.3"), "h200");
  const auto factor = [&](int64_t m, int64_t n) { return corrected(corrections, linear(m, n, 512), 2000, 1000).factor; };
  EXPECT_DOUBLE_EQ(factor(128, 4096), std::exp(double{0.1F} + double{0.5F}));
  EXPECT_DOUBLE_EQ(factor(129, 256), std::exp(double{-0.2F} + double{0.5F}));
  EXPECT_DOUBLE_EQ(factor(129, 512), std::exp(double{0.3F} + double{0.5F}));
  EXPECT_EQ(corrected(corrections, linear(128, 128, 128), 2000, 1000).by->interval.high, 1.2);
}

TEST(Correction, KnowsTheExpectedTime) {
  const std::vector<Correction> corrections = read_corrections(file_with("t10 r1 1 2 3"), "h200");
  const auto log_factor = [&](double expected_ns, double ideal_ns) {
    return std::log(corrected(corrections, linear(128, 128, 128), expected_ns, ideal_ns).factor) - 0.5;
  };
  EXPECT_NEAR(log_factor(1024, 512), 1, 1e-9);
  EXPECT_NEAR(log_factor(1024, 500), 2, 1e-9);
  EXPECT_NEAR(log_factor(1025, 512), 3, 1e-9);
}

TEST(Correction, IsForItsRowsOnly) {
  EXPECT_TRUE(read_corrections(file_with("1"), "h100-80").empty());
  const std::vector<Correction> corrections = read_corrections(file_with("1"), "h200");
  const auto is_corrected = [&](const Operation& operation) { return corrected(corrections, operation, 2000, 1000).by != nullptr; };
  EXPECT_TRUE(is_corrected(linear(8, 64, 64)));
  EXPECT_TRUE(is_corrected(linear(1024, 64, 64, Precision::fp16)));
  EXPECT_FALSE(is_corrected(linear(7, 64, 64))) << "below the range";
  EXPECT_FALSE(is_corrected(linear(1025, 64, 64))) << "above the range";
  EXPECT_FALSE(is_corrected(linear(64, 64, 64, Precision::fp32)));
  Operation gradient = linear(64, 64, 64);
  gradient.gemm.b_transposed = false;
  EXPECT_FALSE(is_corrected(gradient)) << "another layout has other kernels";
  gradient.gemm = {1, 64, 64, 64, true, false};
  EXPECT_FALSE(is_corrected(gradient));
  Operation batched = linear(64, 64, 64);
  batched.gemm.batch = 8;
  EXPECT_FALSE(is_corrected(batched));
  Operation attention = linear(64, 64, 64);
  attention.kind = OperationKind::attention;
  EXPECT_FALSE(is_corrected(attention));
}

TEST(Correction, OfPrefillsOnly) {
  const std::vector<Correction> corrections =
      read_corrections(file_with("w0 -1 h3 2 4", R"("kind": "attention", "batched": false)", R"({"q": [3, 10]})"), "h200");
  Operation operation;
  operation.kind = OperationKind::attention;
  operation.precision = Precision::bf16;
  operation.attention = {.batch = 1, .heads = 8, .kv_heads = 8, .queries = 128, .keys = 128, .head_dim = 64, .value_dim = 64};
  EXPECT_EQ(corrected(corrections, operation, 2000, 1000).by, nullptr) << "PyTorch's own kernels";
  operation.attention.prefill = true;
  EXPECT_NEAR(std::log(corrected(corrections, operation, 2000, 1000).factor), -1 + 0.5, 1e-6);
  operation.attention.window = 4;
  EXPECT_NEAR(std::log(corrected(corrections, operation, 2000, 1000).factor), 2 + 0.5, 1e-6);
}

TEST(Correction, BrokenTreesAreErrors) {
  for (const char* tree : {"", "m7", "m7 0.1", "x7 0.1 0.2", "m7 0.1 0.2 0.3", "mm 0.1 0.2", "0.1x"})
    EXPECT_THROW(read_corrections(file_with(tree), "h200"), Error) << tree;
  EXPECT_THROW(read_corrections(file_with("1", R"("kind": "copy", "batched": false)"), "h200"), Error);
  EXPECT_THROW(read_corrections(file_with("1", R"("kind": "gemm", "batched": false)", R"({"q": [3, 10]})"), "h200"), Error);
}

// Trees know only what they were fitted to, so no correction may be of another order than the rest of the model's errors.
TEST(Correction, BuiltInOnesAreModerate) {
  size_t cards = 0;
  for (const Gpu& gpu : gpu_table()) {
    const auto corrections = corrections_of(gpu);
    cards += corrections.empty() ? 0 : 1;
    for (const Correction& correction : corrections) {
      EXPECT_LE(correction.interval.low, 1) << gpu.id;
      EXPECT_GE(correction.interval.high, 1) << gpu.id;
      EXPECT_FALSE(correction.precisions.empty());
      for (const Precision precision : correction.precisions) EXPECT_NE(precision, Precision::count_);
      for (int64_t m = 16; m <= 8192; m *= 2)
        for (int64_t n = 256; n <= 8192; n *= 2) {
          Operation operation = linear(m, n, 1024, correction.precisions[0]);
          if (correction.batched) operation.gemm = {16, m, n, 64, false, false};
          const Corrected found = corrected(corrections, operation, 1e4, 5e3);
          EXPECT_GT(found.factor, 0.2) << gpu.id << " " << m << " " << n;
          EXPECT_LT(found.factor, 4) << gpu.id << " " << m << " " << n;
        }
    }
  }
  EXPECT_GE(cards, 10U);
}

TEST(Correction, AFileCanLeaveThemOut) {
  const std::string alone = R"({"schema_version": 1, "operations": {"rates": {"source": "a test", "correction_share": 1e-30}}})";
  const Gpu& gpu = find_gpu("h200");
  const Operation operation = linear(4096, 4096, 4096);
  const CardRates with = card_rates(gpu), without = card_rates(gpu, alone);
  const Duration corrected_one = operation_duration(operation, with), model = operation_duration(operation, without);
  const Corrected found = corrected(with.corrections, operation, model.expected_ns, model.ideal_ns);
  EXPECT_DOUBLE_EQ(model.ideal_ns, shape_ideal_ns(operation, with.peak_flop_per_s[Precision::bf16], with.peak_bytes_per_s));
  ASSERT_NE(found.by, nullptr);
  EXPECT_NEAR(corrected_one.expected_ns / model.expected_ns, found.factor, 1e-4);
  EXPECT_NEAR(corrected_one.high_ns / corrected_one.expected_ns, found.by->interval.high, 1e-9);
}

// Trees are fitted to what the built-in constants leave.
TEST(Correction, NotWithOtherConstantsOfProducts) {
  const auto corrections = [](const std::string& layer) {
    return card_rates(find_gpu("h200"), R"({"schema_version": 1, "cards": {"h200": )" + layer + "}}").corrections.size();
  };
  EXPECT_EQ(corrections(R"({"rates": {"source": "a test", "bf16_fraction": 0.7}})"), 0U);
  EXPECT_EQ(corrections(R"({"gemm": {"bf16": {"source": "a test", "tile_cycles": 70}}})"), 0U);
  EXPECT_EQ(corrections(R"({"convolution": {"fp16": {"source": "a test", "forward_overlap": 0.5}}})"),
            corrections_of(find_gpu("h200")).size());
}

// In a line of `time --operations`, FLOPs and bytes need not follow from the sizes.
TEST(Correction, DependsOnTheSizesAlone) {
  Operation one = linear(4096, 1024, 4096), other = one;
  other.flops *= 2;
  other.bytes_read *= 3;
  const CardRates card = card_rates(find_gpu("h200"));
  EXPECT_DOUBLE_EQ(operation_duration(one, card).expected_ns, operation_duration(other, card).expected_ns);
}

}  // namespace
}  // namespace gpucast
