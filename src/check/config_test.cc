#include "src/check/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gpucast/error.h"

namespace gpucast::check {
namespace {

constexpr const char* kWhole = R"(baseline = "ci/memory.json"

[defaults]
gpu = ["RTX 4090", "l4"]
environment = { A = "1", B = "2" }
limits = { growth = "5%", peak_reserved = "30 GiB" }

[[job]]
name = "train"
command = "python train.py --name 'a b'"
limits = { peak_reserved = "20 GiB", step_time = "1.5 s" }

[[job]]
name = "tune"
command = ["python", "tune.py"]
gpu = "a100-80"
steps = "auto"
folder = "tune"
what_if = "bf16"
confidence = 0.95
environment = { B = "3" }
limits = { fits = false, device_total = "40GiB" }
)";

std::string config_problem(const std::string& text) {
  try {
    parse_config(text, "gpucast.toml");
  } catch (const Error& error) {
    return error.where + ": " + error.what() + " | " + error.hint;
  }
  return "none";
}

TEST(CheckConfig, OfAWholeFile) {
  const Config config = parse_config(kWhole, "sub/gpucast.toml");
  EXPECT_EQ(config.baseline, "sub/ci/memory.json");
  EXPECT_EQ(std::filesystem::path(config.folder).filename(), "sub");
  ASSERT_EQ(config.jobs.size(), 2U);
  const Job &train = config.jobs[0], &tune = config.jobs[1];
  EXPECT_EQ(train.command, (std::vector<std::string>{"python", "train.py", "--name", "a b"}));
  EXPECT_EQ(train.gpus, (std::vector<std::string>{"rtx4090", "l4"}));
  EXPECT_EQ(train.confidence, 0.99);
  ASSERT_EQ(train.limits.size(), 4U);
  EXPECT_EQ(train.limit(Figure::peak_reserved)->most_bytes, int64_t{20} << 30);
  EXPECT_EQ(train.limit(Figure::peak_reserved)->place.line, 11);
  EXPECT_EQ(train.limit(Figure::step_time)->most_ns, 1.5e9);
  EXPECT_EQ(train.limit(Figure::growth)->text, "5%");
  EXPECT_EQ(train.limit(Figure::growth)->place.line, 6);
  EXPECT_EQ(train.limit(Figure::fits)->place.line, 8);
  EXPECT_EQ(tune.gpus, std::vector<std::string>{"a100-80"});
  EXPECT_EQ(tune.limit(Figure::fits), nullptr);
  EXPECT_EQ(tune.limit(Figure::peak_reserved)->most_bytes, int64_t{30} << 30);
  EXPECT_EQ(tune.steps, "auto");
  EXPECT_EQ(tune.what_ifs, std::vector<std::string>{"bf16"});
  ASSERT_EQ(tune.environment.size(), 2U);
  EXPECT_EQ(tune.environment[1], (std::pair<std::string, std::optional<std::string>>{"B", "3"}));
}

TEST(CheckConfig, EveryMistakeHasItsPlaceAndWhatToDo) {
  const std::string head = "[[job]]\nname = \"a\"\ncommand = \"python a.py\"\ngpu = \"l4\"\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "gpucast.toml:1:1: the file has no jobs"},
      {"job = []", "gpucast.toml:1:7: the file has no jobs"},
      {"[job]\nname = \"a\"\n", "gpucast.toml:1:1: the file has no jobs"},
      {head + "gqu = 2\n", "gpucast.toml:5:1: a job has no key 'gqu' | did you mean 'gpu'?"},
      {head + "gpus = 0\n", "gpucast.toml:5:8: 'gpus' must be a number from 1 to 1.04858e+06"},
      {head + "world_size = 0\n", "gpucast.toml:5:14: 'world_size' must be a number from 1 to 1.04858e+06"},
      {head + "world_size = 2.5\n", "gpucast.toml:5:14: 'world_size' must be a whole number"},
      {head + "ranks = [0, 1]\n", "gpucast.toml:5:9: 'ranks' says which ranks of a larger job run | say how many it has: world_size = N"},
      {head + "world_size = 2\nranks = [0, 2]\n", "gpucast.toml:6:9: 'ranks': '2' is none of 2 ranks | name some of 0 to 1, such as 0,1"},
      {head + "world_size = 2\nranks = [\"a\"]\n", "gpucast.toml:6:10: 'ranks' must be a list of whole numbers"},
      {"[defaults]\nworld_size = 2\n[[job]]\nname = \"a\"\ncommand = \"torchrun a.py\"\ngpu = \"l4\"\n",
       "gpucast.toml:3:1: 'world_size' starts the ranks itself, and torchrun would, too | give the command of one rank, without torchrun"},
      {"[[job]]\nname = \"a\"\ncapture = \"a.gpucast\"\ngpus = 2\n", "gpucast.toml:4:8: 'gpus' says how a command runs"},
      {head + "machine = \"dgx-a1000\"\n", "gpucast.toml:5:11: "},
      {head + "machine = \"dgx-a100\"\n", "gpucast.toml:5:11: "},
      {"[defaults]\ncommand = \"a\"\n" + head, "gpucast.toml:2:1: [defaults] has no key 'command'"},
      {"jobs = 1\n" + head, "gpucast.toml:1:1: the file has no key 'jobs' | did you mean 'job'?"},
      {head + "steps = 0\n", "gpucast.toml:5:9: 'steps' must be a number from 1 to 1e+06"},
      {head + "steps = \"many\"\n", "gpucast.toml:5:9: "},
      {head + "folder = 3\n", "gpucast.toml:5:10: 'folder' is a whole number, and must be text"},
      {head + "confidence = 2\n", "gpucast.toml:5:14: 'confidence' must be a number from 0.5 to 0.9999"},
      {head + "what_if = [\"bf61\"]\n", "gpucast.toml:5:12: "},
      {head + "environment = { A = 1 }\n", "gpucast.toml:5:17: 'environment' holds names and texts"},
      {head + "limits = { growth = \"5\" }\n", "gpucast.toml:5:21: '5' has no unit | write a size or a percentage: growth = 5MiB"},
      {head + "limits = { growth = 5 }\n", "gpucast.toml:5:21: 'growth' is a whole number, and must be text"},
      {head + "limits = { peak_reserved = \"20 GB\" }\n", "gpucast.toml:5:28: 'GB' can mean powers of 1000 or of 1024"},
      {head + "limits = { step_time = \"120\" }\n", "gpucast.toml:5:24: '120' is no time of a step"},
      {head + "limits = { peak = \"1 GiB\" }\n", "gpucast.toml:5:12: 'limits' has no key 'peak'"},
      {head + "limits = \"5%\"\n", "gpucast.toml:5:10: 'limits' is text, and must be a table"},
      {head + "capture = \"a.gpucast\"\n", "gpucast.toml:1:1: job 'a' has a command and a capture"},
      {head + head, "gpucast.toml:5:1: two jobs have the name 'a' | give one another name; the other is in line 1"},
      {"[[job]]\nname = \"a\"\ngpu = \"l4\"\n", "gpucast.toml:1:1: job 'a' has no command"},
      {"[[job]]\nname = \"a\"\ncommand = \"a\"\n", "gpucast.toml:1:1: job 'a' names no card"},
      {"[[job]]\ncommand = \"a\"\n", "gpucast.toml:1:1: this job has no name"},
      {"[[job]]\nname = \"\"\n", "gpucast.toml:2:8: 'name' is empty"},
      {"[[job]]\ncommand = \"a 'b\"\n", "gpucast.toml:2:11: 'command' leaves a quote open"},
      {"[[job]]\ncommand = []\n", "gpucast.toml:2:11: 'command' must be text, or a list of texts"},
      {"[[job]]\ncommand = [\"a\", 1]\n", "gpucast.toml:2:17: an entry of 'command' is a whole number"},
      {"[[job]]\ngpu = [\"l4\", \"rtx4091\"]\n", "gpucast.toml:2:14: no GPU is named 'rtx4091' | did you mean 'rtx4090'?"},
      {"[[job]]\ngpu = [\"l4\", \"L4\"]\n", "gpucast.toml:2:14: the card 'l4' is named twice"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(config_problem(text).substr(0, expected.size()), expected) << text;
}

TEST(CheckConfig, TheNearestFileAboveIsFound) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / "check_config";
  fs::remove_all(root);
  fs::create_directories(root / "a/b");
  std::ofstream(root / kConfigName) << kWhole;
  EXPECT_EQ(find_config((root / "a/b").string()), "../../gpucast.toml");
  std::ofstream(root / "a" / kConfigName) << kWhole;
  EXPECT_EQ(find_config((root / "a/b").string()), "../gpucast.toml");
  EXPECT_EQ(find_config((root / "a").string()), "gpucast.toml");
  fs::remove_all(root);
}

}  // namespace
}  // namespace gpucast::check
