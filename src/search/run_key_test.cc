#include "src/search/run_key.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gpucast/error.h"
#include "src/run/session_folder.h"
#include "src/search/run_cache.h"

namespace gpucast::search {
namespace {

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string run_key(const RunSpec& spec) { return RunKeys().of(spec); }

RunSpec python_in(const std::string& folder) {
  RunSpec spec;
  spec.command = {"python", "train.py", "--config=c.yaml"};
  spec.folder = folder;
  spec.gpu = "l4";
  return spec;
}

TEST(RunKey, ChangesWithSourcesSettingsAndOptions) {
  const run::SessionFolder folder;
  put(folder.path + "/train.py", "import model");
  put(folder.path + "/model.py", "1");
  put(folder.path + "/c.yaml", "batch: 1");
  put(folder.path + "/weights.bin", "1");
  const RunSpec spec = python_in(folder.path);
  const std::string before = run_key(spec);
  EXPECT_EQ(run_key(spec), before);
  put(folder.path + "/weights.bin", "2");  // no source, and no word of the command
  EXPECT_EQ(run_key(spec), before);
  put(folder.path + "/model.py", "2");
  const std::string after = run_key(spec);
  EXPECT_NE(after, before);
  put(folder.path + "/c.yaml", "batch: 2");
  EXPECT_NE(run_key(spec), after);
  RunSpec other = spec;
  other.what_ifs = {"bf16"};
  EXPECT_NE(run_key(other), run_key(spec));
  other = spec;
  other.environment = {{"X", "1"}};
  EXPECT_NE(run_key(other), run_key(spec));
}

TEST(RunKey, UsedFilesAreComparedByContents) {
  const run::SessionFolder folder;
  const std::string path = folder.path + "/a.py";
  put(path, "1");
  const Json used = used_files({path, "relative.py"});
  EXPECT_EQ(used.size(), 1U);
  EXPECT_TRUE(unchanged(used));
  put(path, "2");
  EXPECT_FALSE(unchanged(used));
  std::filesystem::remove(path);
  EXPECT_FALSE(unchanged(used));
}

TEST(RunCache, AFolderThatCannotBeMadeIsAnError) {
  const run::SessionFolder folder;
  put(folder.path + "/file", "");
  EXPECT_THROW(RunCache(folder.path + "/file/runs"), Error);
}

TEST(RunCache, HalfARunIsNotFound) {
  const run::SessionFolder folder;
  const RunCache cache(folder.path);
  put(cache.begin("key") + "/run.gpucast", "");
  EXPECT_FALSE(cache.find("key", {}));
}

TEST(RunLine, CanBePasted) {
  RunSpec spec = python_in(".");
  spec.environment = {{"A", "x y"}, {"B", std::nullopt}};
  spec.what_ifs = {"bf16"};
  spec.world_size = 8;
  EXPECT_EQ(run_line(spec), "env 'A=x y' -u B gpucast run --gpu l4 --world-size 8 --what-if bf16 -- python train.py --config=c.yaml");
  EXPECT_EQ(time_line(spec), "env 'A=x y' -u B gpucast time --gpu l4 --world-size 8 -- python train.py --config=c.yaml");
}

}  // namespace
}  // namespace gpucast::search
