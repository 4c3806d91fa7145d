#include "src/time/power.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gpucast/error.h"
#include "gpucast/gpu.h"

namespace gpucast {
namespace {

// Round numbers, so that the tests read like the formula.
constexpr PowerConstants kRound{.idle_stacked = 0.1,
                                .idle_other = 0.25,
                                .busy = 0.3,
                                .tensor = 1,
                                .plain = 0.8,
                                .memory = 0.5,
                                .before_volta = 0.5,
                                .most = 0.98,
                                .low = 0.8,
                                .high = 1.25,
                                .limited_low = 0.9};

Gpu card(double watts, int bus_bits = 5120) {
  Gpu out;
  out.compute_major = 8;
  out.power_w = watts;
  out.memory_bus_width_bits = bus_bits;
  return out;
}

TEST(Power, IdleDependsOnTheMemory) {
  EXPECT_DOUBLE_EQ(idle_power_w(card(400), kRound), 40);
  EXPECT_DOUBLE_EQ(idle_power_w(card(400, 384), kRound), 100);
  EXPECT_DOUBLE_EQ(card_power(card(400), {}, kRound).expected_w, 40);
}

TEST(Power, EachUnitAddsItsShare) {
  const PowerRange power =
      card_power(card(400), {.busy_share = 0.5, .tensor_share = 0.1, .plain_share = 0.05, .memory_share = 0.2}, kRound);
  EXPECT_DOUBLE_EQ(power.expected_w, 400 * (0.1 + 0.15 + 0.1 + 0.04 + 0.1));
  EXPECT_DOUBLE_EQ(power.low_w, 0.8 * power.expected_w);
  EXPECT_DOUBLE_EQ(power.high_w, 1.25 * power.expected_w);
}

TEST(Power, TheLimitHoldsTheCard) {
  const CardUse use{.busy_share = 1, .tensor_share = 0.6, .plain_share = 0, .memory_share = 0.4};
  bool limited = false;
  const PowerRange power = card_power(card(400), use, kRound, &limited);  // it would draw 1.2 of the limit
  EXPECT_TRUE(limited);
  EXPECT_DOUBLE_EQ(power.expected_w, 0.98 * 400);
  EXPECT_DOUBLE_EQ(power.high_w, 400);
  EXPECT_DOUBLE_EQ(power.low_w, 0.9 * 0.98 * 400);
  card_power(card(400), {.busy_share = 1}, kRound, &limited);
  EXPECT_FALSE(limited);
}

TEST(Power, ALowerLimitChangesNothingBelowIt) {
  const Gpu &whole = find_gpu("rtx4090"), &limited = find_gpu("rtx4090@300W");
  const CardUse little{.busy_share = 0.2};
  EXPECT_DOUBLE_EQ(card_power(limited, little, kRound).expected_w, card_power(whole, little, kRound).expected_w);
  EXPECT_DOUBLE_EQ(card_power(limited, {.busy_share = 1, .tensor_share = 1}, kRound).expected_w, 0.98 * 300);
  EXPECT_DOUBLE_EQ(idle_power_w(limited, kRound), idle_power_w(whole, kRound));
}

TEST(Power, OlderCardsDrawLessForTheirWork) {
  Gpu old = card(400);
  old.compute_major = 6;
  EXPECT_DOUBLE_EQ(card_power(old, {.busy_share = 1}, kRound).expected_w, 40 + 0.5 * 120);
}

TEST(Power, ASliceDrawsItsPart) {
  const Gpu &whole = find_gpu("a100-80"), &slice = find_gpu("a100-80@3g.40gb");
  const double part = static_cast<double>(slice.multiprocessors) / whole.multiprocessors;
  const CardUse use{.busy_share = 1, .tensor_share = 0.2, .plain_share = 0, .memory_share = 0.2};
  EXPECT_NEAR(card_power(slice, use, kRound).expected_w, part * card_power(whole, use, kRound).expected_w, 1e-9);
}

TEST(Power, UnitsWorkForAtMostTheKernelsTime) {
  const CardRates rates = card_rates(find_gpu("a100-80"));
  Operation product;
  product.kind = OperationKind::gemm;
  product.precision = Precision::bf16;
  product.flops = 312e12 * 1e-3;       // 1 ms at the datasheet's rate
  product.bytes_read = 1'000'000'000;  // 0.5 ms
  Duration duration;
  duration.expected_ns = 2e6;
  CardWork work;
  add_work(product, duration, rates, 3, &work);
  EXPECT_NEAR(work.tensor_ns, 3e6, 1e4);
  EXPECT_EQ(work.plain_ns, 0);
  EXPECT_NEAR(work.memory_ns, 1.5e6, 5e4);
  product.precision = Precision::fp32;
  add_work(product, duration, rates, 1, &work);
  EXPECT_DOUBLE_EQ(work.plain_ns, 2e6);
  const CardUse use = card_use(work, 10e6);
  EXPECT_NEAR(use.tensor_share, 0.3, 1e-3);
  EXPECT_NEAR(use.plain_share, 0.2, 1e-9);
}

TEST(Power, EnergyHasTheErrorsOfPowerAndTime) {
  const CardWork busy{.busy_ns = 1e9, .tensor_ns = 0, .plain_ns = 0, .memory_ns = 0};
  const CardPower known = power_of_step(card(400), busy, {1e9, 1e9, 1e9}, true, kRound);
  EXPECT_DOUBLE_EQ(known.power.expected_w, 160);
  EXPECT_DOUBLE_EQ(known.energy.expected_j, 160);
  EXPECT_NEAR(known.energy.low_j, 160 * 0.8, 1e-9);
  EXPECT_NEAR(known.energy.high_j, 160 * 1.25, 1e-9);
  const CardPower unknown = power_of_step(card(400), busy, {0.8e9, 1e9, 1.25e9}, true, kRound);
  EXPECT_DOUBLE_EQ(unknown.power.low_w, known.power.low_w) << "a longer step is busy all the time, too";
  EXPECT_NEAR(unknown.energy.low_j, 160 * std::exp(-std::hypot(std::log(0.8), std::log(0.8))), 1e-9);
}

// A slower host leaves the card idle for longer: less power for a longer time.
TEST(Power, AHostThatMayBeSlowerWidensThePower) {
  const CardWork half{.busy_ns = 0.5e9, .tensor_ns = 0, .plain_ns = 0, .memory_ns = 0};
  const CardPower known = power_of_step(card(400), half, {1e9, 1e9, 1e9}, false, kRound);
  const CardPower unknown = power_of_step(card(400), half, {0.7e9, 1e9, 2e9}, false, kRound);
  EXPECT_DOUBLE_EQ(unknown.power.expected_w, known.power.expected_w);
  EXPECT_LT(unknown.power.low_w, known.power.low_w);
  EXPECT_GT(unknown.power.high_w, known.power.high_w);
  EXPECT_LT(unknown.energy.high_j / unknown.energy.expected_j, 2 * 1.25) << "while it waits, it draws less";
  EXPECT_FALSE(unknown.limited);
  EXPECT_DOUBLE_EQ(unknown.idle_power_w, 40);
}

TEST(Power, AUsersConstantsReplaceBuiltInOnes) {
  EXPECT_EQ(read_power_constants(R"({"schema_version": 1, "power": {"work": {"busy": 0.5, "source": "ours"}}})").busy, 0.5);
  EXPECT_THROW(read_power_constants(R"({"schema_version": 1, "power": {"work": {"busy": -1, "source": "ours"}}})"), Error);
  const PowerConstants &built_in = power_constants();
  EXPECT_LT(built_in.low, 1);
  EXPECT_GT(built_in.high, 1);
}

}  // namespace
}  // namespace gpucast
