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
  for (const char* name : {"set-to-none", "no-foreach", "half-batch", "bf16", "checkpoint:Block", "checkpoint:blocks.0"}) {
    EXPECT_NO_THROW(check_what_if(name)) << name;
  }
}

TEST(WhatIf, SaysWhatWasMeant) {
  EXPECT_NE(what_if_hint("bf-16").find("did you mean bf16?"), std::string::npos);
  EXPECT_NE(what_if_hint("fp8").find("there are set-to-none, no-foreach, half-batch, batch:N, checkpoint:MODULE, bf16"), std::string::npos);
  EXPECT_EQ(what_if_hint("checkpoint"), "write --what-if checkpoint:MODULE");
  EXPECT_EQ(what_if_hint("checkpoint:"), "write --what-if checkpoint:MODULE");
  EXPECT_EQ(what_if_hint("bf16:Block"), "write --what-if bf16");
}

TEST(WhatIf, HalvesTheBatchOption) {
  for (const char* option : {"--batch", "--batch-size", "--batch_size", "--bs", "-b", "--per_device_train_batch_size", "-batch"}) {
    const auto apart = halve_batch({"python", "train.py", option, "64", "--lr", "64"});
    ASSERT_TRUE(apart) << option;
    EXPECT_EQ(apart->command, (Words{"python", "train.py", option, "32", "--lr", "64"}));
    EXPECT_EQ(apart->did, std::string(option) + " 64 became 32");
    const auto joined = halve_batch({"python", "train.py", std::string(option) + "=65"});
    ASSERT_TRUE(joined) << option;
    EXPECT_EQ(joined->command.back(), std::string(option) + "=32");
  }
}

TEST(WhatIf, LeavesOtherCommandsAlone) {
  EXPECT_FALSE(halve_batch({"python", "train.py"}));
  EXPECT_FALSE(halve_batch({"python", "-b", "train.py"}));
  EXPECT_FALSE(halve_batch({"python", "train.py", "--batch"}));
  EXPECT_FALSE(halve_batch({"python", "train.py", "--batch", "1"}));
  EXPECT_FALSE(halve_batch({"python", "train.py", "--batch=large", "--eval-batch-size", "8"}));
  EXPECT_FALSE(halve_batch({}));
}

}  // namespace
}  // namespace gpucast
