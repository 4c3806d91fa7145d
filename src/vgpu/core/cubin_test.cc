#include "src/vgpu/core/cubin.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace gpucast::vgpu {
namespace {

// A cubin of one kernel, "k", as ptxas lays it out.
std::string cubin(unsigned registers_in_text, const std::vector<uint32_t>& info) {
  const std::string names = std::string("\0.text.k\0.nv.shared.k\0.nv.info\0.symtab\0.shstrtab\0k\0", 51);
  const auto place = [&](const char* name) { return static_cast<Elf64_Word>(names.find(name)); };
  std::vector<Elf64_Sym> symbols(2);
  symbols[1].st_name = static_cast<Elf64_Word>(names.size() - 2);
  std::vector<Elf64_Shdr> sections(6);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = 190;
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = 5;
  const size_t data = sizeof header + sections.size() * sizeof(Elf64_Shdr);
  sections[1].sh_name = place(".text.k");
  sections[1].sh_info = registers_in_text << 24;
  sections[2].sh_name = place(".nv.shared.k");
  sections[2].sh_size = 4096;
  sections[3].sh_name = place(".nv.info");
  sections[3].sh_offset = data + names.size();
  sections[3].sh_size = info.size() * 4;
  sections[4].sh_name = place(".symtab");
  sections[4].sh_type = SHT_SYMTAB;
  sections[4].sh_link = 5;
  sections[4].sh_offset = data + names.size() + info.size() * 4;
  sections[4].sh_size = symbols.size() * sizeof(Elf64_Sym);
  sections[5].sh_name = place(".shstrtab");
  sections[5].sh_offset = data;
  sections[5].sh_size = names.size();
  std::string file(reinterpret_cast<const char*>(&header), sizeof header);
  file.append(reinterpret_cast<const char*>(sections.data()), sections.size() * sizeof(Elf64_Shdr));
  file += names;
  if (!info.empty()) file.append(reinterpret_cast<const char*>(info.data()), info.size() * 4);
  file.append(reinterpret_cast<const char*>(symbols.data()), symbols.size() * sizeof(Elf64_Sym));
  return file;
}

TEST(Cubin, RegistersOfTheTextSectionUnlessANoteSaysMore) {
  const auto old = kernels_of_cubin(cubin(40, {}).data());
  ASSERT_TRUE(old.contains("k"));
  EXPECT_EQ(old.at("k").registers, 40);
  EXPECT_EQ(old.at("k").static_shared_bytes, 4096);
  // Register count 168 and a frame of 16 bytes of symbol 1; one of a symbol that is not there.
  const auto fresh = kernels_of_cubin(cubin(0, {0x00082f04, 1, 168, 0x00081104, 1, 16, 0x00082f04, 9, 7}).data());
  EXPECT_EQ(fresh.at("k").registers, 168);
  EXPECT_EQ(fresh.at("k").local_bytes, 16);
}

TEST(Cubin, WhatIsNoneSaysNothing) {
  EXPECT_TRUE(kernels_of_cubin(nullptr).empty());
  EXPECT_TRUE(kernels_of_cubin("PTX").empty());
  std::string cut = cubin(40, {0x00ff2f04, 1, 168});  // a note longer than its section
  EXPECT_EQ(kernels_of_cubin(cut.data()).at("k").registers, 40);
}

// Each beginning of a file in memory of just that size, and each byte of it changed: whatever is read lies inside.
TEST(Cubin, ReadsNothingBeyondAFile) {
  const std::string whole = cubin(40, {0x00082f04, 1, 168, 0x00081104, 1, 16});
  EXPECT_EQ(kernels_of_cubin(whole.data(), whole.size()).at("k").registers, 168);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    kernels_of_cubin(cut.data(), size);
    for (const int change : {1, 127, 255}) {
      std::vector<char> changed(whole.begin(), whole.end());
      changed[size] = static_cast<char>(changed[size] ^ change);
      kernels_of_cubin(changed.data(), changed.size());
    }
  }
}

}  // namespace
}  // namespace gpucast::vgpu
