#include "src/run/made_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "src/run/session_folder.h"

namespace gpucast::run {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(MadeFiles, AreUndoneTheLastFirst) {
  const SessionFolder around, session;
  const std::string at = around.path + "/", out = at + "out";
  const auto note = [&](std::initializer_list<std::string> fields) {
    std::ofstream journal(session.path + "/made_files", std::ios::binary | std::ios::app);
    for (const std::string& field : fields) journal << field << '\0';
  };
  put(at + "log.txt", "old\nnew\n");
  note({"L", at + "log.txt", "4"});
  put(session.path + "/kept.1.0", "1");
  note({"K", at + "count", "kept.1.0"});
  put(at + "count", "22");
  put(session.path + "/kept.1.1", "");
  note({"K", at + "empty", "kept.1.1"});
  put(at + "empty", "full");
  note({"D", out + ".tmp"});
  note({"F", out + ".tmp/a b\n"});
  note({"R", out + ".tmp", out});
  fs::create_directory(out);
  put(out + "/a b\n", "x");
  note({"D", at + "mixed"});
  fs::create_directory(at + "mixed");
  put(at + "mixed/the user's", "x");
  note({"F", at + "gone"});
  std::ofstream(session.path + "/made_files", std::ios::binary | std::ios::app) << "F" << '\0' << at << "log.txt";  // not whole
  undo_made_files(session.path);
  EXPECT_EQ(text_of(at + "log.txt"), "old\n");
  EXPECT_EQ(text_of(at + "count"), "1");
  EXPECT_TRUE(fs::exists(at + "empty"));
  EXPECT_EQ(text_of(at + "empty"), "");
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(out + ".tmp"));
  EXPECT_TRUE(fs::exists(at + "mixed/the user's"));
  undo_made_files(session.path);  // nothing is left to undo
}

}  // namespace
}  // namespace gpucast::run
