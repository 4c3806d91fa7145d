#include "src/run/own_ranks.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"

namespace gpucast::run {
namespace {

TEST(OwnRanks, ALauncherIsFoundBeforeTheScript) {
  EXPECT_EQ(launcher_in({"env", "A=1", "/opt/bin/torchrun", "--nproc-per-node", "2", "train.py"}), "torchrun");
  EXPECT_EQ(launcher_in({"python", "-m", "torch.distributed.run", "train.py"}), "torch.distributed.run");
  EXPECT_EQ(launcher_in({"python", "train.py", "--backend", "deepspeed"}), std::nullopt);
  EXPECT_EQ(launcher_in({"python", "-m", "my.train", "--backend", "deepspeed"}), std::nullopt);
  EXPECT_THROW(check_starts_no_ranks("--world-size", {"torchrun", "train.py"}), Error);
  check_starts_no_ranks("--world-size", {"python", "train.py"});
}

TEST(OwnRanks, RanksAreSomeOfTheJobs) {
  EXPECT_EQ(parse_ranks("--ranks", "8,0,8", 9), (std::vector<int64_t>{0, 8}));
  for (const char* wrong : {"9", "-1", "a", "0,,1"}) EXPECT_THROW(parse_ranks("--ranks", wrong, 9), Error) << wrong;
}

}  // namespace
}  // namespace gpucast::run
