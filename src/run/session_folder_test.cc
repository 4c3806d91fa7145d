#include "src/run/session_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

TEST(SessionFolder, IsPrivateAndRemovedWithWhatItHolds) {
  std::string path;
  {
    const SessionFolder folder;
    path = folder.path;
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    std::ofstream(folder.path + "/1.python") << "{}";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(SessionFolder, RemovesWhatStandsForUnwrittenCheckpoints) {
  const SessionFolder around;
  const std::string mine = around.path + "/a b\n.pt", changed = around.path + "/changed.pt";
  {
    const SessionFolder folder;
    std::ofstream list(folder.path + "/1.unwritten", std::ios::binary);
    for (const std::string& path : {around.path + "/gone.pt", mine, changed}) {
      std::ofstream(path) << "x";
      struct stat status {};
      ASSERT_EQ(lstat(path.c_str(), &status), 0);
      list << status.st_ino << ' ' << status.st_size << ' ' << status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec << ' ' << path
           << '\0';
    }
    fs::remove(around.path + "/gone.pt");
    std::ofstream(changed) << "the user's";
  }
  EXPECT_FALSE(fs::exists(mine));
  EXPECT_TRUE(fs::exists(changed));
}

TEST(SessionEnvironment, PutsTheLayerBeforeTheUsersPath) {
  setenv("PYTHONPATH", "/mine:/yours", 1);
  setenv("GPUCAST_SESSION", "/of/an/outer/run", 1);
  const auto environment = session_environment("/lib", "/session");
  EXPECT_EQ(std::count(environment.begin(), environment.end(), "PYTHONPATH=/lib/python/site:/mine:/yours"), 1);
  EXPECT_EQ(std::count(environment.begin(), environment.end(), "GPUCAST_SESSION=/session"), 1);
  EXPECT_EQ(std::count_if(environment.begin(), environment.end(), [](const auto& entry) { return entry.starts_with("GPUCAST_SESSION="); }),
            1);
  setenv("PYTHONPATH", "", 1);
  const auto without = session_environment("/lib", "/session");
  EXPECT_EQ(std::count(without.begin(), without.end(), "PYTHONPATH=/lib/python/site"), 1);
  unsetenv("PYTHONPATH");
  unsetenv("GPUCAST_SESSION");
}

}  // namespace
}  // namespace gpucast::run
