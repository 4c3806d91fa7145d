#include "src/occupancy/fatbin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gpucast/error.h"
#include "src/occupancy/cubin.h"
#include "src/occupancy/test_fatbin.h"
#include "src/occupancy/wheel.h"

namespace gpucast {
namespace {

namespace fs = std::filesystem;

// An ELF file of 64 bits with a section of this name.
std::string library(const std::string& content, const std::string& section = ".nv_fatbin") {
  const std::string names = std::string(1, '\0') + section + '\0' + ".shstrtab" + '\0';
  std::vector<Elf64_Shdr> sections(3);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  const size_t data = sizeof header + sections.size() * sizeof(Elf64_Shdr);
  sections[1].sh_name = 1;
  sections[1].sh_offset = data;
  sections[1].sh_size = content.size();
  sections[2].sh_name = static_cast<Elf64_Word>(section.size() + 2);
  sections[2].sh_offset = data + content.size();
  sections[2].sh_size = names.size();
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  out.append(reinterpret_cast<const char*>(sections.data()), sections.size() * sizeof(Elf64_Shdr));
  return out + content + names;
}

using Kind = FatbinEntry::Kind;
using Packing = FatbinEntry::Packing;

class Fatbin : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("gpucast-fatbin-" + std::to_string(getpid()));
    fs::create_directories(folder / "lib");
    path = (folder / "lib" / "libtorch_cuda.so").string();
  }
  void TearDown() override { fs::remove_all(folder); }

  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  // The registers of "k" in each cubin that a card would run.
  std::vector<int> registers(int major, int minor) {
    std::vector<int> out;
    counts = read_fatbins(path, major, minor,
                          [&](std::string_view image) { out.push_back(kernels_of_cubin(image.data(), image.size()).at("k").registers); });
    return out;
  }

  fs::path folder;
  std::string path;
  FatbinCounts counts;
};

TEST_F(Fatbin, TakesTheCodeThatTheCardWouldRun) {
  write(library(fatbin({{80, Kind::cubin, Packing::none, 10},
                        {86, Kind::cubin, Packing::lz4, 20},
                        {90, Kind::cubin, Packing::zstd, 30},
                        {90, Kind::cubin, Packing::zstd, 31, true},
                        {90, Kind::ptx, Packing::none, 40}}) +
                std::string(8, '\0') + fatbin({{80, Kind::cubin, Packing::zstd, 50}})));
  EXPECT_EQ(registers(8, 0), (std::vector{10, 50}));
  EXPECT_EQ(registers(8, 6), (std::vector{20, 50}));
  EXPECT_EQ(registers(8, 9), (std::vector{20, 50}));  // the highest of its major that is not above the card
  EXPECT_EQ(counts.containers, 2);
  EXPECT_EQ(registers(9, 0), (std::vector{31}));
  EXPECT_EQ(counts.without_code, 1);
  EXPECT_EQ(registers(7, 0), std::vector<int>());
  EXPECT_EQ(counts.without_code, 2);
}

TEST_F(Fatbin, OtherFilesAreErrors) {
  const auto what = [&](const std::string& bytes) -> std::string {
    write(bytes);
    try {
      registers(8, 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string whole = library(fatbin({{80, Kind::cubin, Packing::zstd, 10}}));
  EXPECT_EQ(what(whole), "");
  EXPECT_EQ(what(""), "this is no library: it is too short");
  EXPECT_EQ(what(std::string(100, 'x')), "this is no library: it is no ELF file");
  EXPECT_EQ(what(library("", ".text")), "this library has no GPU code");
  EXPECT_EQ(what(whole.substr(0, 100)), "the library is cut off");
  EXPECT_THROW((void)read_fatbins("/none/such", 8, 0, [](std::string_view) {}), Error);
}

// Each beginning of a library, and the library with each byte changed, gives an Error or an answer.
TEST_F(Fatbin, DamageIsAnErrorOrCounted) {
  const std::string whole = library(fatbin({{80, Kind::cubin, Packing::lz4, 10}, {80, Kind::cubin, Packing::zstd, 11}}));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    for (const std::string& bytes : {changed, whole.substr(0, i)}) {
      write(bytes);
      try {
        (void)read_fatbins(path, 8, 0, [](std::string_view image) { (void)kernels_of_cubin(image.data(), image.size()); });
      } catch (const Error& error) {
        EXPECT_STRNE(error.what(), "");
      }
    }
  }
}

TEST_F(Fatbin, AWheelIsReadOnceAndThenFromTheCache) {
  const std::string cache = (folder / "cache").string();
  write(library(fatbin({{80, Kind::cubin, Packing::zstd, 10}}) + fatbin({{80, Kind::cubin, Packing::zstd, 12}})));
  const WheelKernels first = wheel_kernels(folder.string(), 8, 0, cache);
  EXPECT_FALSE(first.cached);
  ASSERT_NE(first.kernels.find("k"), nullptr);
  EXPECT_EQ(first.kernels.find("k")->registers, 12);  // of two kernels with one name, the larger
  EXPECT_EQ(first.kernels.find("k")->static_shared_bytes, 4096);
  EXPECT_EQ(first.kernels.find("other"), nullptr);
  const WheelKernels second = wheel_kernels(folder.string(), 8, 0, cache);
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(second.kernels.find("k")->registers, 12);
  // Another build of the library.
  write(library(fatbin({{80, Kind::cubin, Packing::none, 40}})));
  EXPECT_EQ(wheel_kernels(folder.string(), 8, 0, cache).kernels.find("k")->registers, 40);
  // A damaged cache counts as none.
  for (const auto& file : fs::directory_iterator(cache)) fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_FALSE(wheel_kernels(folder.string(), 8, 0, cache).cached);
}

TEST_F(Fatbin, AWheelWithoutCodeForTheCardIsSaid) {
  write(library(fatbin({{80, Kind::cubin, Packing::zstd, 10}})));
  try {
    (void)wheel_kernels(folder.string(), 9, 0, "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "this PyTorch has no code for compute capability 9.0");
  }
  fs::remove(path);
  EXPECT_THROW((void)wheel_kernels(folder.string(), 8, 0, ""), Error);
  EXPECT_THROW((void)wheel_kernels("/none/such", 8, 0, ""), Error);
}

TEST(KernelTable, BytesAreReadBackEqual) {
  KernelTable table;
  table.add("a", {32, 128, 0});
  table.add("b", {64, 0, 16});
  const std::string bytes = table.to_bytes();
  KernelTable other;
  ASSERT_TRUE(other.from_bytes(bytes));
  EXPECT_EQ(other.size(), 2u);
  EXPECT_EQ(other.find("b")->local_bytes, 16);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(other.from_bytes(changed)) << i;
    EXPECT_FALSE(other.from_bytes(bytes.substr(0, i))) << i;
  }
}

}  // namespace
}  // namespace gpucast
