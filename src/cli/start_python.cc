#include "src/cli/start_python.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "gpucast/error.h"
#include "src/run/program_path.h"
#include "src/run/session_folder.h"

namespace gpucast::cli {

void start_python(const std::string& python, const std::string& script, const std::vector<std::string>& words) {
  const std::string program = run::find_program(python);
  std::vector<std::string> all{python, run::library_folder() + "/python/api/" + script};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  arguments.reserve(all.size() + 1);
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  setenv("GPUCAST_BIN", std::filesystem::read_symlink("/proc/self/exe").c_str(), 1);
  execv(program.c_str(), arguments.data());
  throw Error(fmt::format("cannot start Python: {}", std::strerror(errno)), program, "name another: --python PYTHON");
}

}  // namespace gpucast::cli
