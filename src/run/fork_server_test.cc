#include "src/run/fork_server.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

using ServerWords = std::vector<std::string>;

std::string kind_of(const ServerWords& command) {
  const auto python = parse_python_command(command);
  return python ? python->kind : "";
}

TEST(PythonCommand, KnowsScriptsModulesAndCode) {
  const auto script = parse_python_command({"/usr/bin/python3.11", "-uB", "-Wignore", "-X", "dev", "t.py", "-c", "--x"});
  ASSERT_TRUE(script);
  EXPECT_EQ(script->flags, (ServerWords{"-u", "-B", "-Wignore", "-Xdev"}));
  EXPECT_EQ(script->kind, "script");
  EXPECT_EQ(script->subject, "t.py");
  EXPECT_EQ(script->arguments, (ServerWords{"-c", "--x"}));
  const auto code = parse_python_command({"python", "-cimport torch", "a"});
  EXPECT_EQ(code->kind, "code");
  EXPECT_EQ(code->subject, "import torch");
  EXPECT_EQ(code->arguments, (ServerWords{"a"}));
  const auto module = parse_python_command({"python", "-um", "pkg.train", "a"});
  EXPECT_EQ(module->flags, (ServerWords{"-u"}));
  EXPECT_EQ(module->kind, "module");
  EXPECT_EQ(module->subject, "pkg.train");
}

TEST(PythonCommand, LeavesTheRestToProcessesOfTheirOwn) {
  EXPECT_EQ(kind_of({"sh", "t.sh"}), "");
  EXPECT_EQ(kind_of({"pythonic", "t.py"}), "");
  EXPECT_EQ(kind_of({"torchrun", "t.py"}), "");
  EXPECT_EQ(kind_of({"python"}), "");
  EXPECT_EQ(kind_of({"python", "-"}), "");
  EXPECT_EQ(kind_of({"python", "-c"}), "");
  EXPECT_EQ(kind_of({"python", "--version"}), "");
  EXPECT_EQ(kind_of({"python", "-m", "torch.distributed.run", "t.py"}), "");
  for (const char* flag : {"-I", "-E", "-S", "-i", "-v", "-x", "-uI"}) EXPECT_EQ(kind_of({"python", flag, "t.py"}), "") << flag;
}

struct Folder {
  Folder() : path(make_session_folder()) {}
  ~Folder() { remove_folder(path); }
  std::string file(const std::string& name, const std::string& text, bool program = false) const {
    std::ofstream(path + "/" + name) << text;
    if (program) std::filesystem::permissions(path + "/" + name, std::filesystem::perms::owner_all);
    return path + "/" + name;
  }
  std::string path;
};

TEST(Forkable, NeedsAPythonAndASourceFile) {
  const Folder folder;
  const std::string python = folder.file("python", "", true);
  folder.file("t.py", "import torch\n");
  folder.file("archive", "PK\3\4");
  const ServerWords environment{"PATH=/nowhere:" + folder.path, "PWD=/a", "B=1", "A=2"};
  const auto job = forkable({"python", "t.py"}, environment, folder.path);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->key.program, python);
  EXPECT_EQ(job->key.name, "python");
  EXPECT_EQ(job->key.environment, (ServerWords{"A=2", "B=1", environment[0]}));
  EXPECT_EQ(job->key.folder, "");
  EXPECT_TRUE(forkable({"./python", "t.py"}, {"PATH="}, folder.path));
  EXPECT_FALSE(forkable({"python", "missing.py"}, environment, folder.path));
  EXPECT_FALSE(forkable({"python", "archive"}, environment, folder.path));
  EXPECT_FALSE(forkable({"python", "."}, environment, folder.path));
  EXPECT_FALSE(forkable({"python", "t.py"}, {"PATH=/nowhere"}, folder.path));
}

TEST(Forkable, JobsShareAServerWhereImportsAreTheSame) {
  const Folder folder;
  folder.file("python", "", true);
  folder.file("t.py", "");
  const std::string path = "PATH=" + folder.path;
  const auto key = [&](const ServerWords& command, const ServerWords& environment) {
    return forkable(command, environment, folder.path)->key;
  };
  EXPECT_EQ(key({"python", "t.py"}, {path, "PWD=/a"}), key({"python", "t.py", "--batch", "3"}, {"OLDPWD=/b", path}));
  EXPECT_NE(key({"python", "t.py"}, {path}), key({"python", "t.py"}, {path, "X=1"}));
  EXPECT_NE(key({"python", "t.py"}, {path}), key({"python", "-O", "t.py"}, {path}));
  EXPECT_EQ(key({"python", "t.py"}, {path, "PYTHONPATH=/a"}).folder, "");
  EXPECT_EQ(key({"python", "t.py"}, {path, "PYTHONPATH=/a:lib"}).folder, folder.path);
  EXPECT_EQ(key({"python", "t.py"}, {path, "PYTHONPATH=/a:"}).folder, folder.path);
}

}  // namespace
}  // namespace gpucast::run
