#include "src/explain/what_if.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"

namespace gpucast {
namespace {

using Words = std::vector<std::string>;

std::string what_if_hint(const std::string& name) {
  try {
    check_what_if(name);
  } catch (const Error& error) {
    return error.hint;
  }
  return "";
}

TEST(WhatIf, KnowsItsNames) {
  for (const char* name : {"set-to-none", "no-foreach", "half-batch", "bf16", "checkpoint:Block", "checkpoint:blocks.0",
                           "checkpoint:Block=0-3,7", "micro-batch:4", "attention:flash", "fused", "fsdp", "fsdp:2"}) {
    EXPECT_NO_THROW(check_what_if(name)) << name;
  }
}

TEST(WhatIf, SaysWhatWasMeant) {
  EXPECT_NE(what_if_hint("bf-16").find("did you mean bf16?"), std::string::npos);
  EXPECT_NE(what_if_hint("fp8").find("there are set-to-none, no-foreach, foreach, fused, half-batch, batch:N, micro-batch:K"),
            std::string::npos);
  EXPECT_EQ(what_if_hint("checkpoint"), "write --what-if checkpoint:MODULE");
  EXPECT_EQ(what_if_hint("checkpoint:"), "write --what-if checkpoint:MODULE");
  EXPECT_EQ(what_if_hint("bf16:Block"), "write --what-if bf16");
  for (const char* name : {"checkpoint:Block=", "checkpoint:=1", "checkpoint:Block=a", "checkpoint:Block=1-", "checkpoint:Block=1,,2"})
    EXPECT_EQ(what_if_hint(name), "write --what-if checkpoint:MODULE") << name;
  EXPECT_EQ(what_if_hint("micro-batch:1"), "write --what-if micro-batch:K");
  EXPECT_EQ(what_if_hint("attention:fast"), "write --what-if attention:KERNEL");
  for (const char* name : {"fsdp:", "fsdp:1", "fsdp:all"}) EXPECT_EQ(what_if_hint(name), "write --what-if fsdp[:K]") << name;
}

TEST(WhatIf, HalvesTheBatchOption) {
  for (const char* option : {"--batch", "--batch-size", "--batch_size", "--bs", "-b", "--per_device_train_batch_size", "-batch"}) {
    const auto apart = divide_batch({"python", "train.py", option, "64", "--lr", "64"}, 2, false);
    ASSERT_TRUE(apart) << option;
    EXPECT_EQ(apart->command, (Words{"python", "train.py", option, "32", "--lr", "64"}));
    EXPECT_EQ(apart->did, std::string(option) + " 64 became 32");
    const auto joined = divide_batch({"python", "train.py", std::string(option) + "=65"}, 2, false);
    ASSERT_TRUE(joined) << option;
    EXPECT_EQ(joined->command.back(), std::string(option) + "=32");
  }
}

TEST(WhatIf, DividesTheBatchInParts) {
  const ChangedCommand changed = change_command({"python", "train.py", "--batch", "12"}, {"bf16", "micro-batch:4"});
  EXPECT_EQ(changed.command, (Words{"python", "train.py", "--batch", "3"}));
  EXPECT_EQ(changed.what_ifs[1].did, "--batch 12 became 3");
  EXPECT_FALSE(changed.what_ifs[1].acted) << "the capture layer adds the gradients up";
  EXPECT_EQ(change_command({"python", "train.py", "--batch", "13"}, {"micro-batch:4"}).command.back(), "13");
  EXPECT_TRUE(changes_mathematics("half-batch"));
  EXPECT_FALSE(changes_mathematics("micro-batch:4"));
}

TEST(WhatIf, LeavesOtherCommandsAlone) {
  EXPECT_FALSE(divide_batch({"python", "train.py"}, 2, false));
  EXPECT_FALSE(divide_batch({"python", "-b", "train.py"}, 2, false));
  EXPECT_FALSE(divide_batch({"python", "train.py", "--batch"}, 2, false));
  EXPECT_FALSE(divide_batch({"python", "train.py", "--batch", "1"}, 2, false));
  EXPECT_FALSE(divide_batch({"python", "train.py", "--batch=large", "--eval-batch-size", "8"}, 2, false));
  EXPECT_FALSE(divide_batch({}, 2, false));
}

}  // namespace
}  // namespace gpucast
