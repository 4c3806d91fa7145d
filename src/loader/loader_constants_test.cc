#include "src/loader/loader_constants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "gpucast/error.h"
#include "loader_json.h"
#include "src/base/json.h"
#include "src/base/test_constants.h"
#include "src/loader/loader_model.h"

namespace gpucast {
namespace {

TEST(LoaderConstants, EveryNumberOfTheFileIsRead) {
  const Json built_in = Json::parse(kLoaderJson);
  const Json& groups = built_in["loader"];
  size_t numbers = 0;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const std::string& name : groups.at(g).keys()) {
      if (name == "source") continue;
      const double value = groups.at(g)[name.c_str()].get<double>() * 1.1;
      EXPECT_FALSE(are_equal(read_loader_constants(file_with("loader", groups.keys()[g], name, value)), loader_constants()))
          << groups.keys()[g] << "." << name << " is read by nothing";
      ++numbers;
    }
  EXPECT_EQ(numbers, sizeof(LoaderConstants) / sizeof(double));
  EXPECT_TRUE(are_equal(read_loader_constants(""), loader_constants()));
}

TEST(LoaderConstants, AChangedNumberMovesTheTimeOfABatch) {
  LoaderRecord record;
  record.kind = LoaderKind::dataloader;
  record.cores = 1;
  record.threads_per_core = 2;
  const LoopBatch loop{.ns = 1e8, .cpu_ns = 1e8};
  const auto batch_ns = [&](int64_t workers, const std::string& file) {
    return loader_model(record, loop, {}, read_loader_constants(file))->batch(workers, 0).time.expected_ns;
  };
  EXPECT_LT(batch_ns(1, file_with("loader", "worker", "over_inline", 2)), batch_ns(1, file_with("loader", "worker", "over_inline", 4)));
  EXPECT_GT(batch_ns(16, ""), batch_ns(16, file_with("loader", "cores", "second_thread", 0.9)));
  record.threads_per_core = 1;
  record.cores = 64;
  EXPECT_LT(batch_ns(16, ""), batch_ns(16, file_with("loader", "law", "sigma", 0.5)));
}

TEST(LoaderConstants, ANumberWithoutASourceIsRefused) {
  EXPECT_THROW(read_loader_constants(R"({"schema_version":1,"loader":{"worker":{"over_inline":1.2}}})"), Error);
  EXPECT_THROW(read_loader_constants(file_with("loader", "worker", "over_inlin", 1.2)), Error);
}

}  // namespace
}  // namespace gpucast
