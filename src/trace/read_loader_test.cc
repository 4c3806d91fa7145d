#include "src/trace/read_loader.h"

#include <gtest/gtest.h>

#include <string>

namespace gpucast {
namespace {

constexpr const char* kRecord =
    R"({"record": "loader", "kind": "dataloader", "dataset": "ImageFolder", "iterable": false, "workers": 2, "prefetch_factor": 2,
 "pin_memory": true, "batch_size": 32, "others": 1, "machine": {"cores": 2.0, "threads_per_core": 1, "ranks": 1},
 "next": [[1795486158176383, 30653, 4139], [1795486158227016, 4003, 279]],
 "measured": [{"workers": 1, "batches": 380, "start_ns": 29898381, "period_ns": 4375861.5, "main_cpu_ns": 568708.1, "batch_bytes": 1573120,
 "others_cores": 0.9, "batch_ns": [3000000, 4000000], "cpu_ns": 3724894.6, "fetch_ns": 3472408.6, "stages_ns": {"collate": 1026627},
 "read": {"bytes": 372.3, "device_bytes": 0.0, "calls": 20.1, "files": 3.0}, "queue_ns": 1010138.8}], "said": ["a"], "pin_ns": 98112})";

TEST(ReadLoader, AWholeRecord) {
  LoaderRecord loader;
  ASSERT_TRUE(read_loader(kRecord, &loader));
  EXPECT_EQ(loader.kind, LoaderKind::dataloader);
  EXPECT_EQ(loader.dataset, "ImageFolder");
  EXPECT_EQ(loader.workers, 2);
  EXPECT_EQ(loader.others, 1);
  EXPECT_EQ(loader.cores, 2);
  ASSERT_EQ(loader.taken.size(), 2U);
  EXPECT_EQ(loader.taken[1].wall_us, 4003);
  EXPECT_EQ(loader.taken[1].issuing_cpu_us, loader.taken[1].cpu_us) << "an older capture";
  ASSERT_EQ(loader.runs.size(), 1U);
  const LoaderRun& run = loader.runs.front();
  EXPECT_EQ(run.batches, 380);
  EXPECT_DOUBLE_EQ(run.queue_ns, 1010138.8);
  EXPECT_EQ(run.fetches_ns, (std::vector<double>{3e6, 4e6}));
  EXPECT_DOUBLE_EQ(run.files, 3);
  ASSERT_EQ(run.stages_ns.size(), 1U);
  EXPECT_EQ(run.stages_ns.front().first, "collate");
  EXPECT_EQ(loader.said, std::vector<std::string>{"a"});
}

TEST(ReadLoader, NumbersThatCannotBe) {
  LoaderRecord loader;
  ASSERT_TRUE(read_loader(R"({"kind": "dataloader", "workers": -3, "prefetch_factor": 1e300, "batch_size": "x", "machine": 7,
    "next": [[1, 2], "x", [5, -1, 0], [10, 5, 1], [12, 5, 1], [20, 1e30, 1]], "said": [1, "b"], "measured":
    [{"workers": 1, "period_ns": -5, "batches": 4}, {"workers": 1, "period_ns": 1e300, "batches": 4}, 3, {"workers": 2, "period_ns": 7, "batches": 1,
      "stages_ns": [1], "batch_ns": [null, -1, 8]}, {"workers": 2, "period_ns": 9, "batches": 1}]})",
                          &loader));
  EXPECT_EQ(loader.workers, 0);
  EXPECT_EQ(loader.prefetch_factor, 0);
  EXPECT_EQ(loader.cores, 0);
  ASSERT_GE(loader.taken.size(), 1U);
  EXPECT_EQ(loader.taken.front().unix_us, 10);
  EXPECT_TRUE(loader.taken.size() == 1 || loader.taken[1].unix_us >= 15) << "they do not overlap";
  ASSERT_EQ(loader.runs.size(), 1U) << "each number of workers once";
  EXPECT_EQ(loader.runs.front().period_ns, 7);
  EXPECT_EQ(loader.runs.front().fetches_ns, std::vector<double>{8});
  EXPECT_EQ(loader.said, std::vector<std::string>{"b"});
}

TEST(ReadLoader, WhatIsNoRecordLeavesAllAsItWas) {
  LoaderRecord loader;
  loader.workers = 5;
  const std::string record = kRecord;
  for (size_t size = 0; size + 1 < record.size(); size += 7) EXPECT_FALSE(read_loader(record.substr(0, size), &loader));
  EXPECT_FALSE(read_loader(R"({"kind": "petabyte"})", &loader));
  EXPECT_EQ(loader.workers, 5);
}

}  // namespace
}  // namespace gpucast
