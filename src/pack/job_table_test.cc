#include "src/pack/job_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "gpucast/error.h"

namespace gpucast::pack {
namespace {

JobTable read(const std::string& text) {
  const std::string path = testing::TempDir() + "job_table_test." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << text;
  return read_job_table(path);
}

std::string error_of(const std::string& text) {
  try {
    (void)read(text);
  } catch (const Error& error) {
    return error.where.substr(error.where.rfind(',') + 2) + ": " + error.what();
  }
  return "none";
}

TEST(JobTable, Csv) {
  const JobTable table = read(
      "name,memory_gib,occupancy,step_ms,steps,arrival_s,cards,gpus\r\n"
      "\"a, the \"\"first\"\"\",1.5,0.25,80,1000,3.5,2,P40;a100-80\r\n\r\n,2,,10,,,,\r\n");
  ASSERT_EQ(table.jobs.size(), 2U);
  const Job& a = table.jobs[0];
  EXPECT_EQ(a.name, "a, the \"first\"");
  EXPECT_EQ(a.arrival_ns, 3'500'000'000);
  EXPECT_EQ(a.steps, 1000);
  EXPECT_EQ(a.cards, 2);
  EXPECT_EQ(a.figures_on("v100-32"), nullptr);
  EXPECT_DOUBLE_EQ(a.figures_on("p40")->step_ns, 8e7);
  EXPECT_EQ(a.figures_on("a100-80")->request_bytes, int64_t{3} << 29);
  EXPECT_DOUBLE_EQ(a.figures.occupancy, 0.25);
  EXPECT_EQ(table.jobs[1].name, "line 4");
  EXPECT_DOUBLE_EQ(table.jobs[1].figures.occupancy, 1);
  EXPECT_FALSE(table.jobs[1].figures.mix);
}

TEST(JobTable, JsonLinesWithFiguresByCard) {
  const JobTable table =
      read(R"({"name":"a","step_s":1,"memory_mib":100,"dram":0.5,"nvml_utilization":0.75,"on":{"A100-80":{"step_ms":250,"dram":0.25}}})"
           "\n");
  const Job& a = table.jobs.at(0);
  EXPECT_DOUBLE_EQ(a.figures_on("p40")->step_ns, 1e9);
  EXPECT_DOUBLE_EQ(a.figures_on("p40")->mix->dram, 0.5);
  EXPECT_DOUBLE_EQ(a.figures_on("p40")->mix->busy, 0.75);
  EXPECT_DOUBLE_EQ(a.figures_on("a100-80")->step_ns, 2.5e8);
  EXPECT_DOUBLE_EQ(a.figures_on("a100-80")->mix->dram, 0.25);
  EXPECT_EQ(a.figures_on("a100-80")->request_bytes, 100 << 20);
  // It has figures for no other card, so it runs on no other.
  const JobTable listed = read(R"({"on":{"p40":{"step_ms":1,"memory_mib":1}}})");
  EXPECT_EQ(listed.jobs.at(0).figures_on("a100-80"), nullptr);
}

TEST(JobTable, ResultsOfABatch) {
  const JobTable table =
      read(R"({"schema_version":1,"name":"a","status":"fits","report":{"device":{"request_bytes":5},"gpu_time":{"expected_ns":7.5}}})"
           "\n"
           R"({"schema_version":1,"name":"b","status":"failed","report":null})"
           "\n"
           R"({"schema_version":1,"name":"c","status":"fits","report":{"device":{"request_bytes":6},"environment":{"world_size":4}}})"
           "\n");
  ASSERT_EQ(table.jobs.size(), 2U);
  EXPECT_EQ(table.failed_runs, 1);
  EXPECT_EQ(table.without_time, 1);
  EXPECT_EQ(table.jobs[0].figures.request_bytes, 5);
  EXPECT_DOUBLE_EQ(table.jobs[0].figures.step_ns, 7.5);
  EXPECT_EQ(table.jobs[1].cards, 4);
}

TEST(JobTable, SaysWhatIsWrongAndWhere) {
  const std::string heading = "name,memory_mib,step_ms,steps,arrival_s,cards\n", good = "a,1,1,1,0,1\n";
  EXPECT_EQ(error_of(heading + good + "b,1,0,1,0,1\n" + good), "line 3: this is no job: the time of a step is not above 0");
  EXPECT_EQ(error_of(heading + good + "b,1,-5,1,0,1\n"), "line 3: this is no job: the time of a step is not above 0");
  EXPECT_EQ(error_of(heading + "b,1,nan,1,0,1\n"), "line 2: this is no job: the time of a step is not above 0");
  EXPECT_EQ(error_of(heading + "b,1,1,0,0,1\n"), "line 2: this is no job: the number of steps is from 1 to 1e+12, not 0");
  EXPECT_EQ(error_of(heading + "b,1,1,1,-1,1\n"), "line 2: this is no job: the arrival in nanoseconds is from 0 to 2e+18, not -1e+09");
  EXPECT_EQ(error_of(heading + "b,1,1,1,0,0\n"), "line 2: this is no job: the number of cards is from 1 to 1e+06, not 0");
  EXPECT_EQ(error_of(heading + "b,0,1,1,0,1\n").substr(0, 34), "line 2: this is no job: the memory");
  EXPECT_EQ(error_of(heading + good + "b,1,1\n"), "line 3: this is no job: it has 3 fields, and the heading 6");
  EXPECT_EQ(error_of(heading + "\"b,1,1,1,0,1\n"), "line 2: this is no job: a quoted field has no end");
  EXPECT_EQ(error_of(heading + "b,x,1,1,0,1\n"), "line 2: this is no job: 'memory_mib' is no number: 'x'");
  EXPECT_EQ(error_of("name,memory_mb\n"), "line 1: this is no job: a job has no 'memory_mb'; did you mean 'memory_mib'?");
  EXPECT_EQ(error_of("name,memory_mib\na,1\n"), "line 2: this is no job: it has no step time: 'step_ns', 'step_ms' or 'step_s'");
  EXPECT_EQ(error_of("name,memory_mib,step_ms,gpus\na,1,1,p41\n").substr(0, 23), "line 2: this is no job:");
  EXPECT_EQ(error_of("{\"step_ms\":1,\"memory_mib\":1}\n{\"step_ms\":1,\n"), "line 2: this is no job: it is no JSON object");
  EXPECT_EQ(error_of("{\"step_ms\":1,\"memory_mib\":1,\"occupancy\":1.5}\n"),
            "line 1: this is no job: the occupancy is a share from 0 to 1, not 1.5");
  EXPECT_EQ(error_of("{\"step_ms\":1e300,\"memory_mib\":1}\n"), "line 1: this is no job: the job lasts longer than three years");
  EXPECT_THROW(read(""), Error);
  EXPECT_THROW(read(heading), Error);
}

}  // namespace
}  // namespace gpucast::pack
