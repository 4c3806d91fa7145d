#include "src/ledger/beside.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

JobFacts job_of(std::vector<JobClass> classes) {
  JobFacts job;
  job.classes = std::move(classes);
  job.peak_reserved_bytes = 4 * kGiB;
  job.cuda_major = 12;
  return job;
}

TEST(Beside, IsTheSumOfItsLines) {
  JobFacts job = job_of({JobClass::dense, JobClass::varying_lengths});
  job.own_lines = {{"buffers", "nccl", 7, 7, 7, "recorded"}};
  const Beside out = beside_allocator(find_gpu("rtx3060"), job, 0.99);
  ASSERT_EQ(out.lines.size(), 5u);
  const LedgerLine total = ledger_total(out.lines);
  EXPECT_EQ(out.low_bytes, total.low_bytes);
  EXPECT_EQ(out.expected_bytes, total.expected_bytes);
  EXPECT_EQ(out.high_bytes, total.high_bytes);
  EXPECT_LE(out.high_bytes, out.request_bytes);
  EXPECT_LT(out.low_bytes, out.least_bytes);  // a range that begins below 0 does not reduce the memory that is certainly used
  EXPECT_LE(out.least_bytes, out.expected_bytes);
}

TEST(Beside, WithoutConvolutionsTheLedgersHighIsAskedFor) {
  const Beside out = beside_allocator(find_gpu("rtx3060"), job_of({JobClass::no_convolutions}), 0.99);
  EXPECT_EQ(out.lines.size(), 2u);
  EXPECT_EQ(out.request_bytes, out.high_bytes);
  EXPECT_EQ(out.least_bytes, out.low_bytes);
}

TEST(Beside, NeverAsksForLessThanExpected) {
  const Beside out = beside_allocator(find_gpu("rtx3060"), job_of({JobClass::depthwise}), 0.5);
  EXPECT_GE(out.request_bytes, out.expected_bytes);
}

TEST(Beside, AsksForMoreFromACpusProfile) {
  JobFacts job = job_of({JobClass::no_convolutions});
  const int64_t captured = beside_allocator(find_gpu("rtx3060"), job, 0.99).request_bytes;
  job.profile_method = "gpucast";
  const Beside out = beside_allocator(find_gpu("rtx3060"), job, 0.99);
  EXPECT_EQ(out.request_bytes - captured, job.peak_reserved_bytes / 50);
  EXPECT_NE(out.request_source.find("2 % for what a CPU's profile leaves open"), std::string::npos);
  job.profile_method = "xmem";
  EXPECT_NE(beside_allocator(find_gpu("rtx3060"), job, 0.99).request_source.find("method xmem"), std::string::npos);
}

}  // namespace
}  // namespace gpucast
