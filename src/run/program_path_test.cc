#include "src/run/program_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpucast/error.h"
#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

TEST(FindProgram, SaysWhatWasMeant) {
  const SessionFolder folder;
  std::ofstream(folder.path + "/train.py") << "";
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  const auto hint_for = [](const std::string& program) -> std::string {
    try {
      find_program(program);
    } catch (const Error& error) {
      return error.hint;
    }
    return "found";
  };
  EXPECT_EQ(hint_for(folder.path + "/train.py"), "a script needs its Python: -- python " + (folder.path + "/train.py"));
  EXPECT_EQ(hint_for("train.py"), "a script needs its Python: -- python train.py");
  const std::string path_before = getenv("PATH");
  setenv("PATH", folder.path.c_str(), 1);
  std::ofstream(folder.path + "/python3") << "#!/bin/sh\n";
  fs::permissions(folder.path + "/python3", fs::perms::owner_all);
  EXPECT_EQ(hint_for("pyhton3"), "did you mean 'python3'?");
  EXPECT_EQ(find_program("python3"), folder.path + "/python3");
  setenv("PATH", path_before.c_str(), 1);  // other tests of this process start programs
}

}  // namespace
}  // namespace gpucast::run
