#include "src/run/batch_results.h"

#include <gtest/gtest.h>

#include "gpucast/error.h"
#include "src/base/json.h"

namespace gpucast::run {
namespace {

TEST(BatchResults, ALineHoldsWhatTheRunSaid) {
  JobEnd end;
  end.name = "a";
  end.exit_code = 0;
  end.seconds = 1.23456;
  end.forked = true;
  end.run_json = R"({"exit_code":0,"report":{"verdict":"tight","peak":[1,2.5]},"error":null,"printed_bytes":3})";
  Tally tally;
  const std::string line = result_line(end, &tally);
  EXPECT_EQ(line,
            "{\"schema_version\":1,\"name\":\"a\",\"status\":\"tight\",\"exit_code\":0,\"seconds\":1.235,\"forked\":true,"
            "\"report\":{\"verdict\":\"tight\",\"peak\":[1,2.5]},\"error\":null}\n");
  EXPECT_EQ(tally.fit, 1);
}

TEST(BatchResults, AFailureSaysWhyAndWhatWasPrinted) {
  JobEnd end;
  end.name = "a";
  end.exit_code = 1;
  end.run_json = R"({"exit_code":1,"report":{},"error":null,"printed_bytes":3})";
  Tally tally;
  EXPECT_EQ(Json::parse(result_line(end, &tally)).value("status", ""), "does_not_fit");
  end.run_json = R"({"exit_code":0,"rep)";  // it was killed while it wrote
  end.problem = JobProblem{"killed", "m", "w", "t"};
  end.printed = "last words\n\xff";
  const Json line = Json::parse(result_line(end, &tally));
  EXPECT_EQ(line.value("status", ""), "failed");
  EXPECT_EQ(line.value("exit_code", 0), 2);
  EXPECT_TRUE(line["report"].is_null());
  EXPECT_EQ(line["error"].value("code", ""), "killed");
  EXPECT_EQ(line.value("printed", ""), "last words\n\xef\xbf\xbd");
  EXPECT_EQ(tally.do_not_fit, 1);
  EXPECT_EQ(tally.failed, 1);
}

TEST(BatchResults, ReadsWholeLinesAndDropsATornOne) {
  const std::string whole = "{\"schema_version\":1,\"name\":\"a\",\"status\":\"fits\"}\n";
  const FormerResults former = read_results(whole + "{\"schema_version\":1,\"na", "r");
  EXPECT_EQ(former.status_by_name, (std::map<std::string, std::string>{{"a", "fits"}}));
  EXPECT_EQ(former.size_bytes, static_cast<int64_t>(whole.size()));
  EXPECT_EQ(read_results(whole + "{\"sch", "r").size_bytes, former.size_bytes);
  EXPECT_EQ(read_results("", "r").size_bytes, 0);
  EXPECT_THROW(read_results("import torch\n", "r"), Error);
  EXPECT_THROW(read_results("import torch", "r"), Error);
  EXPECT_THROW(read_results("{\"name\": 1}\n", "r"), Error);
}

TEST(BatchResults, LastLinesAreWhole) {
  EXPECT_EQ(last_lines("a\nb\n", 10), "a\nb\n");
  EXPECT_EQ(last_lines("aaaa\nbb\n", 5), "bb\n");
  EXPECT_EQ(last_lines("aaaa\nbb\n", 3), "bb\n");
  EXPECT_EQ(last_lines("abcdefgh", 3), "fgh");
}

TEST(BatchResults, ProgressSaysHowLong) {
  const Tally tally{3, 1, 1};
  EXPECT_EQ(progress_text(tally, 5, 10, 35, false), "5 done, 1 failed, 10 left, 1 min 10 s");
  EXPECT_EQ(progress_text(tally, 0, 10, 1, false), "5 done, 1 failed, 10 left");
  EXPECT_EQ(progress_text(tally, 5, 2, 5, true), "5 done, 1 failed, 2 or more left, 2 s");
}

}  // namespace
}  // namespace gpucast::run
