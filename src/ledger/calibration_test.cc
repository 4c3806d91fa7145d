#include "src/ledger/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

TEST(Calibration, ScoresBetweenAndBeyondThoseOfTheTable) {
  CalibrationClass row;
  row.quantiles = {{0.5, 0.1}, {0.9, 0.2}, {0.99, 0.5}};
  EXPECT_DOUBLE_EQ(score_at(row, 0.5), 0.1);
  EXPECT_DOUBLE_EQ(score_at(row, 0.4), 0.1);
  EXPECT_DOUBLE_EQ(score_at(row, 0.9), 0.2);
  EXPECT_DOUBLE_EQ(score_at(row, 0.99), 0.5);
  EXPECT_NEAR(score_at(row, 1 - std::sqrt(0.1 * 0.01)), 0.35, 1e-12);  // halfway on the scale of log(1 - confidence)
  EXPECT_NEAR(score_at(row, 0.999), 0.8, 1e-12);                       // the tail between the last two continues
}

TEST(Calibration, EveryClassHasARangeThatGrowsWithConfidence) {
  for (size_t i = 0; i < static_cast<size_t>(JobClass::count_); ++i) {
    const auto job_class = static_cast<JobClass>(i);
    int64_t last = 0;
    for (const double confidence : {0.5, 0.8, 0.9, 0.95, 0.99, 0.995, 0.9999}) {
      const CalibratedRange range = calibrated_range(job_class, find_gpu("rtx3060"), 4 * kGiB, true, confidence);
      EXPECT_LE(range.low_bytes, 0) << job_class_name(job_class);
      EXPECT_GE(range.high_bytes, 0);
      EXPECT_GE(range.request_bytes, last) << job_class_name(job_class) << " at " << confidence;
      EXPECT_NE(range.rows.find(job_class == JobClass::workspaces_asked ? "no run was measured" : "measured runs of"), std::string::npos)
          << range.rows;
      last = range.request_bytes;
    }
  }
}

TEST(Calibration, RunsWithoutConvolutionsLieWithinTheLedger) {
  const CalibratedRange range = calibrated_range(JobClass::no_convolutions, find_gpu("rtx3060"), 8 * kGiB, true, 0.99);
  EXPECT_EQ(range.request_bytes, 0);
}

TEST(Calibration, IsWiderOutsideOfMeasurementsAndSaysSo) {
  const auto range = [](const char* gpu, int64_t reserved_bytes, bool measured_type) {
    return calibrated_range(JobClass::dense, find_gpu(gpu), reserved_bytes, measured_type, 0.99);
  };
  const CalibratedRange measured = range("rtx3060", 8 * kGiB, true);
  EXPECT_EQ(measured.wider, "");
  EXPECT_GT(range("h100-80", 8 * kGiB, true).request_bytes, measured.request_bytes);
  EXPECT_LT(range("h100-80", 8 * kGiB, true).low_bytes, measured.low_bytes);
  EXPECT_EQ(range("h100-80", 8 * kGiB, true).wider, "none was measured on this card");
  EXPECT_GT(range("rtx3060", 8 * kGiB, false).request_bytes, measured.request_bytes);
  EXPECT_EQ(range("h100-80", 80 * kGiB, false).wider, "none was measured on this card or in this precision or of this size");
  EXPECT_TRUE(measured.beyond_worst);
  EXPECT_FALSE(calibrated_range(JobClass::dense, find_gpu("rtx3060"), kGiB, true, 0.9).beyond_worst);
  EXPECT_EQ(range("rtx4060", 8 * kGiB, true).request_bytes, measured.request_bytes);
}

TEST(Calibration, GrowsWithReservedMemoryWhileSmallAndBeyondTheLargestMeasured) {
  const auto request = [](int64_t reserved_bytes) {
    return calibrated_range(JobClass::pointwise, find_gpu("rtx3060"), reserved_bytes, true, 0.99).request_bytes;
  };
  EXPECT_NEAR(static_cast<double>(request(800 * kMiB)), 2 * static_cast<double>(request(400 * kMiB)), kMiB);
  EXPECT_EQ(request(9 * kGiB), request(8 * kGiB));
  EXPECT_NEAR(static_cast<double>(request(60 * kGiB)), 2 * static_cast<double>(request(30 * kGiB)), 2 * kMiB);
}

}  // namespace
}  // namespace gpucast
