#include "src/time/constants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "gpucast/error.h"
#include "src/time/duration.h"

namespace gpucast {
namespace {

std::string constants_error(const std::string& json, const char* gpu = "a100-80") {
  try {
    (void)card_rates(find_gpu(gpu), json);
    return "read";
  } catch (const Error& error) {
    EXPECT_FALSE(error.hint.empty());
    return std::string(error.what()) + " | " + error.where;
  }
}

std::string rates(const std::string& numbers) {
  return R"({"schema_version":1,"cards":{"a100-80":{"rates":{"source":"x",)" + numbers + "}}}}";
}

TEST(Constants, EveryCardOfTheTableHasAll) {
  for (const Gpu& gpu : gpu_table()) {
    const CardRates card = card_rates(gpu);
    for (size_t p = 0; p < kPrecisionCount; ++p) {
      const auto precision = static_cast<Precision>(p);
      EXPECT_GT(card.sustained_flop_per_s[precision], 0) << gpu.id;
      for (size_t k = 0; k < kKindCount; ++k) {
        const Interval interval = card.interval[static_cast<OperationKind>(k)][precision];
        EXPECT_LE(interval.low, 1) << gpu.id << operation_kind_name(static_cast<OperationKind>(k));
        EXPECT_GE(interval.high, 1) << gpu.id << operation_kind_name(static_cast<OperationKind>(k));
      }
      EXPECT_LE(card.prefill_window_interval[precision].low, card.prefill_interval[precision].low) << gpu.id;
      EXPECT_GE(card.prefill_window_interval[precision].high, card.prefill_interval[precision].high) << gpu.id;
      EXPECT_LE(card.window_interval[precision].low, card.interval[OperationKind::attention][precision].low) << gpu.id;
      EXPECT_GE(card.window_interval[precision].high, card.interval[OperationKind::attention][precision].high) << gpu.id;
    }
    EXPECT_LE(card.dram_bytes_per_s, gpu.bandwidth_bytes_per_s) << gpu.id;
  }
}

TEST(Constants, ALaterLayerOverridesAnEarlierOne) {
  const char* file = R"({"schema_version":1,
    "operations":{"copy":{"all":{"floor_ns":11,"passes":12,"dram_fraction":0.5,"source":"x"}}},
    "architectures":{"8.0":{"copy":{"all":{"passes":13,"dram_fraction":0.6,"source":"x"}}}, "9.0":{"copy":{"all":{"passes":99,"source":"x"}}}},
    "cards":{"a100-80":{"copy":{"all":{"dram_fraction":0.7,"source":"x"}}}, "h200":{"copy":{"all":{"passes":98,"source":"x"}}}}})";
  const BytesConstants copy = card_rates(find_gpu("a100-80"), file).bytes[OperationKind::copy];
  EXPECT_EQ(copy.floor_ns, 11);
  EXPECT_EQ(copy.passes, 13);
  EXPECT_EQ(copy.dram_fraction, 0.7);
}

TEST(Constants, NullRemovesACardsLayer) {
  EXPECT_TRUE(card_rates(find_gpu("a100-80"), rates(R"("dram_fraction":0.5)")).own_constants);
  EXPECT_FALSE(card_rates(find_gpu("a100-80"), R"({"schema_version":1,"cards":{"a100-80":null}})").own_constants);
}

TEST(Constants, SaysWhatIsWrong) {
  EXPECT_EQ(constants_error(rates(R"("dram_fraction":-0.5)")),
            "the constant 'rates.dram_fraction' is -0.5, not a finite number above 0 | the constants file, cards, a100-80");
  EXPECT_EQ(constants_error(rates(R"("dram_fraction":0)")),
            "the constant 'rates.dram_fraction' is 0, not a finite number above 0 | the constants file, cards, a100-80");
  EXPECT_EQ(constants_error(rates(R"("dram_fraction":null)")),
            "the constant 'rates.dram_fraction' is null, not a finite number above 0 | the constants file, cards, a100-80");
  EXPECT_EQ(constants_error(rates(R"("dram_fraction":"NaN")")),
            "the constant 'rates.dram_fraction' is \"NaN\", not a finite number above 0 | the constants file, cards, a100-80");
  EXPECT_EQ(constants_error(rates(R"("dram_fraction":NaN)")), "the constants are no JSON object (JSON has no NaN) | the constants file");
  EXPECT_EQ(constants_error(rates(R"("dram_fraction":1e999)")).rfind("the constant", 0), 0U);
  EXPECT_EQ(constants_error("[]"), "the constants are no JSON object (JSON has no NaN) | the constants file");
  EXPECT_EQ(constants_error("{}"), "the constants' schema_version is not 1 | the constants file");
  EXPECT_EQ(constants_error(R"({"schema_version":1,"card":{}})").rfind("'card' is none of operations, architectures, cards", 0), 0U);
  EXPECT_EQ(constants_error(R"({"schema_version":1,"operations":{"gem":{}}})"),
            "no kind of operation is named 'gem' | the constants file, operations");
  EXPECT_EQ(constants_error(R"({"schema_version":1,"operations":{"gemm":{"fp33":{"source":"x"}}}})"),
            "no precision is named 'fp33' | the constants file, operations");
  EXPECT_EQ(constants_error(R"({"schema_version":1,"operations":{"gemm":{"fp32":{"floor_ns":1}}}})"),
            "the constants of 'gemm.fp32' have no \"source\" | the constants file, operations");
}

std::string layer(const std::string& where, const std::string& of) { return R"({"schema_version":1,")" + where + R"(":{)" + of + "}}"; }

std::string hint_of(const std::string& json) {
  try {
    (void)card_rates(find_gpu("a100-80"), json);
    return "read";
  } catch (const Error& error) {
    return error.hint;
  }
}

TEST(Constants, ACardOrArchitectureThatIsNoneIsAnError) {
  EXPECT_EQ(constants_error(layer("cards", R"("foo":{})")), "no GPU is named 'foo' | the constants file, cards");
  EXPECT_EQ(constants_error(layer("cards", R"("foo":null)")), "no GPU is named 'foo' | the constants file, cards");
  EXPECT_NE(hint_of(layer("cards", R"("foo":{})")).find("gpucast gpus lists the names"), std::string::npos);
  EXPECT_NE(hint_of(layer("architectures", R"("99":{})")).find("one of 6.0, "), std::string::npos);
  EXPECT_NE(hint_of(layer("cards", R"("h200x":{})")).find("did you mean 'h200'"), std::string::npos);
  EXPECT_EQ(constants_error(layer("cards", R"("a100-80":{},"A100-80":{})")),
            "'A100-80' is 'a100-80', which stands there already | the constants file, cards");
  EXPECT_EQ(constants_error(layer("architectures", R"("99":{})")),
            "no card's compute capability is '99' | the constants file, architectures");
  EXPECT_EQ(constants_error(R"({"schema_version":1,"cards":[]})"), "'cards' is no object | the constants file");
  EXPECT_EQ(constants_error(R"({"schema_version":1,"architectures":3})"), "'architectures' is no object | the constants file");
  // The constants of other cards, and the names in the built-in files.
  EXPECT_EQ(constants_error(layer("cards", R"("a100-40-pcie":null,"h200":{})")), "read");
  for (const Gpu& gpu : gpu_table()) {
    EXPECT_EQ(constants_error(layer("architectures", fmt::format("\"{}.{}\":{{}}", gpu.compute_major, gpu.compute_minor))), "read")
        << gpu.id;
    EXPECT_EQ(constants_error(layer("cards", fmt::format("\"{}\":null", gpu.id))), "read");
  }
}

TEST(Constants, ACardIsNamedAsTheCommandLineNamesIt) {
  const CardRates card = card_rates(find_gpu("a100-80"), layer("cards", R"("A100-80":{"rates":{"source":"x","launch_ns":123}})"));
  EXPECT_EQ(card.launch_ns, 123);
  EXPECT_FALSE(card_rates(find_gpu("a100-80"), layer("cards", R"("A100_80":null)")).own_constants);
}

TEST(Constants, AConstantThatNoLayerHasIsAnError) {
  EXPECT_EQ(constants_error(rates(R"("bf17_fraction":0.5)")),
            "no constant is named 'rates.bf17_fraction' | the constants file, cards, a100-80");
  EXPECT_EQ(constants_error(layer("operations", R"("gemm":{"fp16":{"source":"x","floor_ns":3000}})")),
            "no constant is named 'gemm.floor_ns' | the constants file, operations");
  // As tools/calibrate.py writes it.
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16", "fp8"}) {
    EXPECT_EQ(constants_error(rates(fmt::format(R"("{0}_fraction":0.5,"{0}_flop_per_joule":1e12)", precision))), "read") << precision;
  }
  EXPECT_EQ(constants_error(rates(R"("dram_fraction":0.5,"link_bytes_per_s":1e10,"launch_ns":2000,"l2_bytes_per_clock":20)")), "read");
}

TEST(Constants, IntervalsContainTheExpectedTime) {
  EXPECT_EQ(
      constants_error(rates(R"("step_low":1.5)")),
      "the constant 'rates.step_low' is 1.5, above 1: the expected value would lie outside of its interval | the constants file, cards, "
      "a100-80");
  EXPECT_EQ(
      constants_error(rates(R"("step_high_datasheet":0.5)")),
      "the constant 'rates.step_high_datasheet' is 0.5, below 1: the expected value would lie outside of its interval | the constants "
      "file, cards, a100-80");
  EXPECT_NE(constants_error(rates(R"("step_low_datasheet":1.01)")), "read");
  EXPECT_NE(constants_error(rates(R"("step_low":0.9,"step_high":0.8)")), "read");
  EXPECT_EQ(constants_error(rates(R"("step_low":1,"step_high":1,"step_low_datasheet":0.9,"step_high_datasheet":2)")), "read");
  for (const char* wrong : {R"("low":1.2)", R"("high":0.9)", R"("low_datasheet":1.2)", R"("high_datasheet":0.9)"}) {
    EXPECT_NE(constants_error(layer("operations", fmt::format(R"("copy":{{"all":{{"source":"x",{}}}}})", wrong))), "read") << wrong;
  }
  const auto of_window = [](double low) {
    return constants_error(layer("operations", fmt::format(R"("attention":{{"all":{{"source":"x","window_low":{}}}}})", low)));
  };
  EXPECT_EQ(of_window(0.9), "read");
  EXPECT_NE(of_window(1.2), "read");
}

TEST(Constants, MeasuredIsTrueOrFalse) {
  EXPECT_EQ(constants_error(layer("cards", R"("a100-80":{"measured":"no"})")),
            "'measured' is \"no\", neither true nor false | the constants file, cards, a100-80");
  EXPECT_EQ(constants_error(layer("cards", R"("a100-80":{"measured":false})")), "read");
}

TEST(CardRates, ACardWithoutItsRatesIsAnError) {
  const auto error_without = [](auto&& remove) {
    Gpu gpu = find_gpu("rtx3090");
    remove(gpu);
    try {
      (void)card_rates(gpu);
      return std::string("there");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(error_without([](Gpu&) {}), "there");
  EXPECT_EQ(error_without([](Gpu& gpu) { gpu.bandwidth_bytes_per_s = 0; }),
            "the time on 'rtx3090' cannot be predicted: its memory bandwidth is not known");
  EXPECT_EQ(error_without([](Gpu& gpu) { gpu.peak_flop_per_s.clear(); }),
            "the time on 'rtx3090' cannot be predicted: its fp32 rate is not known");
  EXPECT_EQ(error_without([](Gpu& gpu) { gpu.peak_flop_per_s["fp16"] = std::numeric_limits<double>::quiet_NaN(); }),
            "the time on 'rtx3090' cannot be predicted: its fp16 rate is not known");
}

// 72 W cannot keep an L4 at its peak; 300 W do not hold an A40 back.
TEST(CardRates, PowerBindsSmallCards) {
  const CardRates l4 = card_rates(find_gpu("l4")), a40 = card_rates(find_gpu("a40"));
  EXPECT_LT(l4.sustained_flop_per_s[Precision::fp32] / l4.peak_flop_per_s[Precision::fp32], 0.6);
  EXPECT_GT(a40.sustained_flop_per_s[Precision::fp32] / a40.peak_flop_per_s[Precision::fp32], 0.9);
}

}  // namespace
}  // namespace gpucast
