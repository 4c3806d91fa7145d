// For tests: machine code in the format of ptxas, and fat binaries in the format of nvcc.
#pragma once

#include <elf.h>
#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "src/occupancy/fatbin.h"

namespace gpucast {

// A cubin with one kernel, "k", in the layout of ptxas.
// `info`: notes for all kernels, or for this kernel.
inline std::string cubin(unsigned registers_in_text, const std::vector<uint32_t>& info, bool of_kernel = false) {
  const std::string names = std::string("\0.text.k\0.nv.shared.k\0.nv.info\0.symtab\0.shstrtab\0.nv.info.k\0k\0", 62);
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
  const std::string notes = of_kernel ? std::string(".nv.info.k\0", 11) : std::string(".nv.info\0", 9);
  sections[3].sh_name = static_cast<Elf64_Word>(names.find(notes));
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

struct FatbinPart {
  int arch;
  FatbinEntry::Kind kind;
  FatbinEntry::Packing packing;
  unsigned registers;
  bool this_arch_only = false;
};

template <typename T>
void put_field(std::string* bytes, size_t offset, T value) {
  std::memcpy(bytes->data() + offset, &value, sizeof value);
}

// An entry as nvcc writes it: a header of 64 bytes and the image, packed and padded to 8 bytes.
inline std::string fatbin_entry(const FatbinPart& part) {
  const std::string image = cubin(part.registers, {});
  std::string packed = image;
  uint32_t flags = part.this_arch_only ? 0x100000 : 0;
  if (part.packing == FatbinEntry::Packing::lz4) {
    packed.resize(static_cast<size_t>(LZ4_compressBound(static_cast<int>(image.size()))));
    packed.resize(static_cast<size_t>(
        LZ4_compress_default(image.data(), packed.data(), static_cast<int>(image.size()), static_cast<int>(packed.size()))));
    flags |= 0x2000;
  } else if (part.packing == FatbinEntry::Packing::zstd) {
    packed.resize(ZSTD_compressBound(image.size()));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), image.data(), image.size(), 3));
    flags |= 0x8000;
  }
  const auto packed_bytes = static_cast<uint32_t>(packed.size());
  packed.resize((packed.size() + 7) / 8 * 8);
  std::string out(kFatbinEntryBytes, '\0');
  put_field<uint16_t>(&out, 0, part.kind == FatbinEntry::Kind::ptx ? 1 : 2);
  put_field<uint32_t>(&out, 4, kFatbinEntryBytes);
  put_field<uint64_t>(&out, 8, packed.size());
  put_field<uint32_t>(&out, 16, packed_bytes);
  put_field<uint32_t>(&out, 28, static_cast<uint32_t>(part.arch));
  put_field<uint32_t>(&out, 40, flags);
  put_field<uint64_t>(&out, 56, image.size());
  return out + packed;
}

inline std::string fatbin(const std::vector<FatbinPart>& parts) {
  std::string entries;
  for (const FatbinPart& part : parts) entries += fatbin_entry(part);
  const FatbinHeader header{kFatbinMagic, 1, sizeof header, entries.size()};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + entries;
}

}  // namespace gpucast
