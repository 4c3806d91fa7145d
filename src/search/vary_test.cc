#include "src/search/vary.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gpucast/error.h"
#include "src/run/session_folder.h"
#include "src/search/accumulation.h"
#include "src/search/command_option.h"
#include "src/search/script_options.h"

namespace gpucast::search {
namespace {

using Command = std::vector<std::string>;

TEST(Vary, ReadsAnOptionAndItsRange) {
  const Vary vary = parse_vary("batch=--batch-size:1..512", {"python", "t.py", "--batch-size", "32"});
  EXPECT_EQ(vary.name, "batch");
  EXPECT_EQ(vary.target, "--batch-size");
  EXPECT_EQ(vary.high, 512);
  EXPECT_EQ(vary.now, 32);
  const Vary stepped = parse_vary("size=--img:224..1024/32", {"python", "t.py"});
  EXPECT_EQ(stepped.low, 224);
  EXPECT_EQ(stepped.step, 32);
  EXPECT_FALSE(stepped.now);
  EXPECT_EQ(parse_vary("batch=loader", {}).kind, VaryKind::loader);
  const Vary key = parse_vary("batch=conf/c.yaml:train.batch_size:1..64", {});
  EXPECT_EQ(key.kind, VaryKind::file_key);
  EXPECT_EQ(key.file, "conf/c.yaml");
  EXPECT_EQ(key.target, "train.batch_size");
  EXPECT_EQ(key.high, 64);
}

TEST(Vary, SaysWhatIsWrong) {
  for (const char* text : {"", "batch", "=--b", "batch=", "batch=--b:1..x", "batch=--b:8..4", "batch=--b:0..4", "batch=--b:1..4/0"}) {
    EXPECT_THROW(parse_vary(text, {}), Error) << text;
  }
}

TEST(Vary, FindsTheBatchInTheCommand) {
  const auto found = [](const Command& command) { return find_batches(command, "/nonexistent").front(); };
  EXPECT_EQ(found({"python", "t.py", "--per_device_train_batch_size", "8"}).target, "--per_device_train_batch_size");
  EXPECT_EQ(found({"python", "t.py", "--batch_size=8"}).now, 8);
  EXPECT_EQ(found({"python", "t.py", "-b", "8"}).target, "-b");
  EXPECT_EQ(found({"python", "t.py", "train.batch_size=8"}).target, "train.batch_size");
  EXPECT_EQ(found({"python", "t.py", "SOLVER.IMS_PER_BATCH", "8"}).target, "SOLVER.IMS_PER_BATCH");
  EXPECT_EQ(found({"python", "t.py", "--training.local_batch_size", "8"}).now, 8);
  EXPECT_EQ(found({"python", "t.py", "--batch_size", "128", "--micro_batch_size", "4"}).target, "--micro_batch_size");
  EXPECT_EQ(found({"python", "t.py", "train_dataloader.batch_size=8"}).now, 8);
  EXPECT_EQ(found({"python", "t.py", "--eval_batch_size", "8"}).kind, VaryKind::loader);
  EXPECT_EQ(found({"python", "t.py", "--lr", "8"}).kind, VaryKind::loader);
}

TEST(Vary, FindsAnOptionThatTheScriptDeclares) {
  const run::SessionFolder folder;
  std::ofstream(folder.path + "/t.py")
      << "p.add_argument('-l', \"--lr\")\np.add_argument('--batch-size', default=4)\np.add_argument(\"--grad_accum\")";
  const Command command = {"python", "t.py"};
  EXPECT_EQ(declared_options(command, folder.path), (Command{"--lr", "--batch-size", "--grad_accum"}));
  EXPECT_EQ(find_batches(command, folder.path).front().target, "--batch-size");
  EXPECT_EQ(find_batches(command, folder.path).back().kind, VaryKind::loader);
  const Accumulation accumulation = parse_accumulation("256", command, folder.path);
  EXPECT_EQ(with_accumulation(command, accumulation, 64), (Command{"python", "t.py", "--grad_accum=4"}));
  EXPECT_THROW(parse_accumulation("256", {"python", "other.py"}, folder.path), Error);
  EXPECT_THROW(parse_accumulation("many", command, folder.path), Error);
}

TEST(Vary, FindsAnOptionThatAnImportedFileDeclares) {
  const run::SessionFolder folder;
  std::filesystem::create_directories(folder.path + "/options");
  std::filesystem::create_directories(folder.path + "/project/train");
  std::ofstream(folder.path + "/t.py") << "import os, sys\nfrom options.base import Options\nimport torch\n";
  std::ofstream(folder.path + "/options/base.py") << "p.add_argument('--batch_size')\n";
  std::ofstream(folder.path + "/project/train/main.py") << "from train.params import parse\n";
  std::ofstream(folder.path + "/project/train/params.py") << "from .more import b\n";
  std::ofstream(folder.path + "/project/train/more.py") << "p.add_argument('--micro-batch-size')\n";
  EXPECT_EQ(find_batches({"torchrun", "t.py"}, folder.path).front().target, "--batch_size");
  EXPECT_EQ(find_batches({"python", "-m", "train.main"}, folder.path + "/project").front().target, "--micro-batch-size");
  EXPECT_EQ(find_batches({"python", "-m", "train.other"}, folder.path + "/project").front().kind, VaryKind::loader);
}

TEST(Vary, FindsNamesThatALibraryMakesOptions) {
  const run::SessionFolder folder;
  const auto found = [&](const std::string& source) {
    std::ofstream(folder.path + "/t.py") << source;
    return find_batches({"python", "t.py"}, folder.path).front();
  };
  EXPECT_EQ(found("batch_size = 12 # per micro step\nexec(open('configurator.py').read())\n").target, "--batch_size");
  EXPECT_EQ(found("class Args:\n    batch_size: int = 128\nargs = tyro.cli(Args)\n").target, "--batch_size");
  EXPECT_EQ(found("def train(batch_size = 128, micro_batch_size: int = 4):\n  pass\nfire.Fire(train)\n").target, "--micro_batch_size");
  EXPECT_EQ(found("class A:\n  bs: int = field(default=4)\nHfArgumentParser(A)\n").target, "--bs");
  const std::string lightning = "class Data(LightningDataModule):\n  def __init__(self, batch_size: int = 32):\n    pass\n";
  EXPECT_EQ(found("\n" + lightning + "cli = LightningCLI(Model, Data)\n").target, "--data.batch_size");
  EXPECT_EQ(found("\nclass M(L.LightningModule):\n  def __init__(self, batch_size=32): pass\nLightningCLI(M)\n").target,
            "--model.batch_size");
  EXPECT_EQ(found("batch_size = 12\n").kind, VaryKind::loader);
  EXPECT_EQ(found("batch_size = args.batch_size\nself.batch_size = 3\nfire.Fire(train)\n").kind, VaryKind::loader);
}

TEST(Vary, FindsNumbersInTheSource) {
  const run::SessionFolder folder;
  std::ofstream(folder.path + "/t.py") << "import model\n# batch_size = 1\nBATCH_SIZE = 64 # how many\nx = batch_size\nbatch_size_x = 3\n";
  std::ofstream(folder.path + "/model.py") << "def f(n, bs: int = 8, c = 3):\n  C.batch_size=1_000\n";
  EXPECT_EQ(batch_numbers({"python", "t.py"}, folder.path),
            (Command{"t.py:3: BATCH_SIZE = 64", "model.py:1: bs: int = 8", "model.py:2: batch_size=1_000"}));
}

TEST(Vary, FindsFieldsOfSettingsThatAreOptions) {
  const run::SessionFolder folder;
  std::ofstream(folder.path + "/t.py") << "from config import Training\nimport manager\n"
                                          "class Trainer:\n"
                                          "    @dataclass\n"
                                          "    class Config:\n"
                                          "        training: Training = field(default_factory=Training)\n"
                                          "        num_batches: int = 4\n";
  std::ofstream(folder.path + "/config.py") << "class Debug:\n    batch_invariant: bool = False\n\n"
                                               "class Training:\n"
                                               "    tokens_per_microbatch: int = 16384\n"
                                               "    batch_limit: int = -1\n"
                                               "    def check(self, batch: int = 3):\n"
                                               "        batch_count: int = 5\n";
  const auto found = [&](const std::string& manager) {
    std::ofstream(folder.path + "/manager.py") << manager;
    Command out;
    for (const OptionNumber& field : batch_fields({"python", "t.py"}, folder.path))
      out.push_back(field.option + " " + std::to_string(field.number));
    return out;
  };
  EXPECT_EQ(found("config = tyro.cli(Trainer.Config)\n"), Command{"--training.tokens_per_microbatch 16384"});
  EXPECT_EQ(found("config = Trainer.Config()\n"), Command{});
}

TEST(Vary, SetsAnOptionWhereItStands) {
  EXPECT_EQ(with_option({"p", "--b", "1", "--c"}, "--b", "2"), (Command{"p", "--b", "2", "--c"}));
  EXPECT_EQ(with_option({"p", "--b=1"}, "--b", "2"), (Command{"p", "--b=2"}));
  EXPECT_EQ(with_option({"p"}, "--b", "2"), (Command{"p", "--b=2"}));
  EXPECT_EQ(with_option({"p"}, "-b", "2"), (Command{"p", "-b", "2"}));
  EXPECT_EQ(with_option({"p"}, "train.b", "2"), (Command{"p", "train.b=2"}));
}

TEST(Vary, TheLoadersBatchIsAWhatIf) {
  RunSpec spec;
  spec.command = {"python", "t.py"};
  const RunSpec changed = with_value(spec, parse_vary("batch=loader", spec.command), 16, "");
  EXPECT_EQ(changed.command, spec.command);
  EXPECT_EQ(changed.what_ifs, Command{"batch:16"});
}

}  // namespace
}  // namespace gpucast::search
