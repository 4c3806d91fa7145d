#include "src/replay/tune.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/bytes.h"

namespace gpucast {
namespace {

class TunedProgram {
 public:
  TunedProgram() { history_.streams = {0}; }
  uint32_t alloc(int64_t mib) {
    AllocOp op;
    op.kind = OpKind::alloc;
    op.id = history_.id_count++;
    op.size_bytes = mib * kMiB;
    history_.ops.push_back(op);
    return op.id;
  }
  void free(uint32_t id) {
    AllocOp op;
    op.kind = OpKind::free;
    op.id = id;
    history_.ops.push_back(op);
  }
  History& history() { return history_; }

 private:
  History history_;
};

// `count` segments of 100 MiB, each with 70 MiB in use, and then 100 MiB more.
History fragments(int count) {
  TunedProgram program;
  std::vector<uint32_t> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ids.push_back(program.alloc(100));
  for (const uint32_t id : ids) program.free(id);
  for (int i = 0; i < count; ++i) program.alloc(70);
  program.alloc(100);
  return program.history();
}

Tuning tune_at(const History& history, std::optional<int64_t> capacity_bytes, const std::string& own_conf = "") {
  ReplaySettings own;
  own.alloc_conf = own_conf;
  own.capacity_bytes = capacity_bytes;
  own.addresses = AddressPolicy::ascending;
  return tune(history, own);
}

const TriedSetting& find(const Tuning& tuning, const std::string& alloc_conf) {
  return *std::find_if(tuning.tried.begin(), tuning.tried.end(), [&](const TriedSetting& t) { return t.alloc_conf == alloc_conf; });
}

TEST(Tune, FindsTheSmallestWithoutALimit) {
  const Tuning tuning = tune_at(fragments(8), std::nullopt);
  EXPECT_EQ(tuning.tried[tuning.own].alloc_conf, "");
  EXPECT_EQ(tuning.tried[tuning.own].peak_reserved_bytes, 900 * kMiB);
  EXPECT_EQ(find(tuning, "expandable_segments:True").peak_reserved_bytes, 800 * kMiB);
  ASSERT_TRUE(tuning.best.has_value());
  EXPECT_EQ(tuning.tried[*tuning.best].alloc_conf, "expandable_segments:True");
  EXPECT_TRUE(std::is_sorted(tuning.tried.begin(), tuning.tried.end(),
                             [](const auto& a, const auto& b) { return a.peak_reserved_bytes < b.peak_reserved_bytes; }));
}

TEST(Tune, FindsWhatRunsOnACard) {
  const Tuning tuning = tune_at(fragments(8), 850 * kMiB);
  EXPECT_FALSE(tuning.tried[tuning.own].survives);
  ASSERT_TRUE(tuning.best.has_value());
  EXPECT_TRUE(tuning.tried[*tuning.best].survives);
  EXPECT_EQ(tuning.tried[*tuning.best].alloc_conf, "expandable_segments:True");
  EXPECT_FALSE(find(tuning, "roundup_power2_divisions:8").survives);
}

TEST(Tune, RecommendsNothingThatGainsLittle) {
  TunedProgram program;
  program.alloc(20);
  EXPECT_FALSE(tune_at(program.history(), std::nullopt).best.has_value());
  EXPECT_FALSE(tune_at(program.history(), 30 * kMiB).best.has_value());  // it runs without a retry
  EXPECT_FALSE(tune_at(program.history(), 10 * kMiB).best.has_value());  // no setting runs
}

TEST(Tune, AFailureOfTheRecordingIsToBeSaved) {
  History history = fragments(8);
  history.ops.back().failed_when_recorded = true;
  const Tuning tuning = tune_at(history, 850 * kMiB);
  EXPECT_FALSE(tuning.tried[tuning.own].survives);
  EXPECT_TRUE(find(tuning, "expandable_segments:True").survives);
}

TEST(Tune, RoundingIsCounted) {
  TunedProgram program;
  program.alloc(34);  // with two divisions 48 MiB
  const Tuning tuning = tune_at(program.history(), std::nullopt, "roundup_power2_divisions:2");
  EXPECT_EQ(tuning.tried[tuning.own].rounding_bytes, 14 * kMiB);
  EXPECT_EQ(find(tuning, "").rounding_bytes, 0);
  ASSERT_TRUE(tuning.best.has_value());
  EXPECT_EQ(tuning.tried[*tuning.best].alloc_conf, "");
}

TEST(Tune, TriesEachSettingOnceAndGarbageCollectionOnlyWhereItActs) {
  TunedProgram program;
  program.alloc(1);
  program.history().torch = "2.6.0";
  const auto has_garbage_collection = [&] {
    const std::vector<std::string> tried = settings_to_try(program.history(), "max_split_size_mb:64", true);
    EXPECT_EQ(std::count(tried.begin(), tried.end(), "max_split_size_mb:64"), 1);
    EXPECT_EQ(tried.front(), "max_split_size_mb:64");
    return std::any_of(tried.begin(), tried.end(), [](const std::string& s) { return s.find("garbage") != std::string::npos; });
  };
  EXPECT_FALSE(has_garbage_collection());
  AllocOp fraction;
  fraction.kind = OpKind::set_fraction;
  program.history().ops.push_back(fraction);
  EXPECT_TRUE(has_garbage_collection());
}

}  // namespace
}  // namespace gpucast
