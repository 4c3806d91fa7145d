#include "src/pack/constants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpucast/error.h"
#include "pack_json.h"
#include "src/base/json.h"
#include "src/base/test_constants.h"
#include "src/pack/simulate.h"

namespace gpucast::pack {
namespace {

TEST(PackConstants, EveryNumberOfTheFileIsRead) {
  const Json built_in = Json::parse(kPackJson);
  const Json& groups = built_in["pack"];
  size_t numbers = 0;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const std::string& name : groups.at(g).keys()) {
      if (name == "source") continue;
      const double value = groups.at(g)[name.c_str()].get<double>() * (name == "low" ? 0.9 : 1.1);
      EXPECT_FALSE(are_equal(read_pack_constants(file_with("pack", groups.keys()[g], name, value)), pack_constants()))
          << groups.keys()[g] << "." << name << " is read by nothing";
      ++numbers;
    }
  EXPECT_EQ(numbers, sizeof(PackConstants) / sizeof(double));
  EXPECT_TRUE(are_equal(read_pack_constants(""), pack_constants()));
  EXPECT_TRUE(are_equal(read_pack_constants(R"({"schema_version":1,"operations":{},"cards":{}})"), pack_constants()));
}

TEST(PackConstants, AChangedNumberMovesThePlan) {
  Job job;
  job.steps = 100;
  job.figures = {1e8, int64_t{1} << 30, 0.3, 0.3, 0.6, std::nullopt};
  const std::vector<Job> jobs(3, job);
  const Cluster cluster = parse_cluster("v100-16", SharingMode::mps);
  const auto makespan_ns = [&](const std::string& file) {
    PackOptions options;
    options.constants = read_pack_constants(file);
    return simulate(jobs, cluster, options).makespan_ns;
  };
  EXPECT_GT(makespan_ns(file_with("pack", "mps", "cost", 1.4)), makespan_ns(""));
  EXPECT_EQ(makespan_ns(file_with("pack", "choice", "least_gain", 0.99)), 30'000'000'000) << "one job after another";
}

std::string pack_constants_error(const std::string& file) {
  try {
    (void)read_pack_constants(file);
    return "read";
  } catch (const Error& error) {
    return fmt::format("{} | {} | {}", error.what(), error.where, error.hint.substr(0, error.hint.find('?') + 1));
  }
}

TEST(PackConstants, SaysWhatIsWrong) {
  EXPECT_EQ(pack_constants_error(R"({"schema_version":1,"pack":{"mps":{"cost":1.2}}})"),
            "the constants of 'mps' have no \"source\" | the constants file, pack | ");
  EXPECT_EQ(pack_constants_error(R"({"schema_version":1,"pack":{"mps":{"source":"x","cost":"1.2"}}})"),
            "the constant 'mps.cost' is \"1.2\", not a finite number above 0 | the constants file, pack | ");
  EXPECT_EQ(pack_constants_error(file_with("pack", "mps", "high", 0.9)),
            "the constant 'mps.high' is 0.9, below 1: the expected value would lie outside of its interval | the constants file, pack | ");
  EXPECT_EQ(pack_constants_error(file_with("pack", "mps", "costs", 1.2)),
            "no constant is named 'mps.costs' | the constants file, pack | did you mean 'mps.cost'?");
  EXPECT_EQ(pack_constants_error(file_with("pack", "mpss", "cost", 1.2)),
            "no group of constants is named 'mpss' | the constants file, pack | did you mean 'mps'?");
  EXPECT_TRUE(pack_constants_error(R"({"schema_version":1,"pak":{}})").ends_with(" | the constants file | did you mean 'pack'?"));
  EXPECT_EQ(pack_constants_error(R"({"schema_version":1,"pack":[]})"), "'pack' is no object | the constants file | ");
  EXPECT_EQ(pack_constants_error(R"({"schema_version":2,"pack":{}})"), "the constants' schema_version is not 1 | the constants file | ");
}

}  // namespace
}  // namespace gpucast::pack
