#include "src/run/batch_job.h"

#include <gtest/gtest.h>

namespace gpucast::run {
namespace {

using JobWords = std::vector<std::string>;

JobProblem problem_of(const std::string& line) {
  const ParsedJob parsed = parse_job(line, 7, {});
  return parsed.problem.value_or(JobProblem{"none", "", "", ""});
}

TEST(BatchJob, TakesEveryKey) {
  const ParsedJob parsed = parse_job(
      R"({"name": "a", "command": ["python", "t.py"], "gpu": "RTX 3060", "steps": 5, "timeout_s": 2.5, "environment": {"X": "1", "Y": null},
          "folder": "f", "output": "o.gpucast", "log": "l", "force": true, "enforce_capacity": true, "measure_host": true, "what_if": ["bf16"]})",
      1, {});
  ASSERT_FALSE(parsed.problem) << parsed.problem->message;
  const Job& job = parsed.job;
  EXPECT_EQ(job.name, "a");
  EXPECT_EQ(job.command, (JobWords{"python", "t.py"}));
  EXPECT_EQ(job.environment[0], (std::pair<std::string, std::optional<std::string>>("X", "1")));
  EXPECT_EQ(job.environment[1], (std::pair<std::string, std::optional<std::string>>("Y", std::nullopt)));
  EXPECT_EQ(job.folder, "f");
  EXPECT_EQ(job.log, "l");
  size_t options_end = 0;
  EXPECT_EQ(run_words(job, "/bin/gpucast", &options_end),
            (JobWords{"/bin/gpucast", "run", "--as-job", "--gpu=RTX 3060", "--steps=5", "--timeout=2.5", "--output=o.gpucast", "--force",
                      "--enforce-capacity", "--measure-host", "--what-if=bf16", "--", "python", "t.py"}));
  EXPECT_EQ(options_end, 11U);
}

TEST(BatchJob, ALineOfAJobIsReadBackAsTheSameJob) {
  Job job;
  job.name = "a";
  job.command = {"python", "t.py", "\xff", "it's"};
  job.gpu = "rtx3060";
  job.gpus = 4;
  job.world_size = 8;
  job.ranks = "0,4";
  job.steps = "5";
  job.timeout_s = 2.5;
  job.environment = {{"X", "1"}, {"Y", std::nullopt}};
  job.output = "o.gpucast";
  job.force = true;
  job.what_ifs = {"bf16"};
  const ParsedJob parsed = parse_job(job_line(job), 1, {});
  ASSERT_FALSE(parsed.problem) << parsed.problem->message;
  size_t options_end = 0;
  EXPECT_EQ(run_words(parsed.job, "g", &options_end), run_words(job, "g", &options_end));
  EXPECT_EQ(parsed.job.environment, job.environment);
}

TEST(BatchJob, HasTheBatchsDefaults) {
  Job defaults;
  defaults.gpu = "rtx3060";
  defaults.steps = "auto";
  const ParsedJob own = parse_job(R"({"command": "python t.py", "gpu": "a100-40"})", 12, defaults);
  EXPECT_EQ(own.job.name, "line 12");
  EXPECT_EQ(own.job.gpu, "a100-40");
  EXPECT_EQ(own.job.steps, "auto");
  EXPECT_EQ(parse_job(R"({"command": "python t.py", "gpu": null})", 1, defaults).job.gpu, "rtx3060");
}

TEST(BatchJob, SaysWhatIsWrong) {
  EXPECT_EQ(problem_of("{nonsense").message, "this is no JSON object");
  EXPECT_EQ(problem_of("[1]").where, "line 7 of the jobs");
  EXPECT_EQ(problem_of("{}").message, "\"command\" is missing");
  EXPECT_EQ(problem_of(R"({"command": []})").message, "\"command\" is missing");
  EXPECT_EQ(problem_of(R"({"command": "python 'a"})").message, "\"command\" leaves a quote open");
  EXPECT_EQ(problem_of(R"({"command": ["a", 3]})").message, "\"command\" must be a list of texts");
  EXPECT_EQ(problem_of(R"({"command": "a", "steps": 0})").message, "\"steps\" must be a whole number, 1 or more");
  EXPECT_EQ(problem_of(R"({"command": "a", "steps": "often"})").message, "--steps: 'often' is not a number above 0");
  EXPECT_EQ(problem_of(R"({"command": "a", "timeout_s": -1})").message, "\"timeout_s\" must be a number of seconds above 0");
  EXPECT_EQ(problem_of(R"({"command": "a", "force": 1})").message, "\"force\" must be true or false");
  EXPECT_EQ(problem_of(R"({"command": "a", "environment": {"A=B": "x"}})").code, "bad_job");
  EXPECT_EQ(problem_of(R"({"command": "a", "enforce_capcity": true})").to_do, "did you mean \"enforce_capacity\"?");
  EXPECT_EQ(problem_of(R"({"command": "a", "what_if": ["b16"]})").code, "bad_job");
  EXPECT_EQ(problem_of(R"({"command": "a", "gpu": "rtx9999"})").code, "unknown_gpu");
  // Its name is known although the job cannot be run.
  EXPECT_EQ(parse_job(R"({"name": "x", "gpu": "rtx9999", "command": "a"})", 7, {}).job.name, "x");
  EXPECT_EQ(parse_job(R"({"name": "x"})", 7, {}).job.name, "x");
}

TEST(SplitCommand, IsAShellWithoutExpansion) {
  EXPECT_EQ(split_command("  python\tt.py  --x 1 "), (JobWords{"python", "t.py", "--x", "1"}));
  EXPECT_EQ(split_command(R"(a 'b c' "d \"e\" \n" f\ g "" h'i'"j")"), (JobWords{"a", "b c", "d \"e\" \\n", "f g", "", "hij"}));
  EXPECT_EQ(split_command("echo $HOME *"), (JobWords{"echo", "$HOME", "*"}));
  EXPECT_EQ(split_command(""), JobWords{});
  EXPECT_FALSE(split_command("a \"b"));
}

}  // namespace
}  // namespace gpucast::run
