#include "src/vgpu/core/cubin.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace gpucast::vgpu {
namespace {

constexpr uint16_t kMachineCuda = 190;
// Records of .nv.info: a byte that says how the value is kept, one that says what it is, and two of size or value.
constexpr uint8_t kSizedValue = 4, kFrameSize = 0x11, kRegisterCount = 0x2f;
constexpr std::string_view kText = ".text.", kShared = ".nv.shared.", kInfo = ".nv.info";

template <typename T>
T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

std::map<std::string, KernelResources> kernels_of_cubin(const void* image) {
  std::map<std::string, KernelResources> kernels;
  const char* const file = static_cast<const char*>(image);
  if (file == nullptr || std::strncmp(file, ELFMAG, SELFMAG) != 0 || file[EI_CLASS] != ELFCLASS64) return kernels;
  const auto header = read<Elf64_Ehdr>(file);
  if (header.e_machine != kMachineCuda || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) return kernels;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), file + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  const char* const names = file + sections[header.e_shstrndx].sh_offset;
  const Elf64_Shdr* symbols = nullptr;
  for (const Elf64_Shdr& section : sections) {
    const std::string_view name = names + section.sh_name;
    if (section.sh_type == SHT_SYMTAB) symbols = &section;
    if (name.starts_with(kText)) kernels[std::string(name.substr(kText.size()))].registers = static_cast<int>(section.sh_info >> 24);
  }
  for (const Elf64_Shdr& section : sections) {
    const std::string_view name = names + section.sh_name;
    if (!name.starts_with(kShared)) continue;
    if (const auto found = kernels.find(std::string(name.substr(kShared.size()))); found != kernels.end())
      found->second.static_shared_bytes = static_cast<int>(section.sh_size);
  }
  if (symbols == nullptr || symbols->sh_link >= sections.size()) return kernels;
  const char* const symbol_names = file + sections[symbols->sh_link].sh_offset;
  const auto named_by = [&](uint32_t index) -> KernelResources* {
    if (index >= symbols->sh_size / sizeof(Elf64_Sym)) return nullptr;
    const auto symbol = read<Elf64_Sym>(file + symbols->sh_offset + index * sizeof(Elf64_Sym));
    const auto found = kernels.find(symbol_names + symbol.st_name);
    return found != kernels.end() ? &found->second : nullptr;
  };
  for (const Elf64_Shdr& section : sections) {
    if (names + section.sh_name != kInfo) continue;
    const char* record = file + section.sh_offset;
    const char* const end = record + section.sh_size;
    while (end - record >= 4) {
      const auto format = read<uint8_t>(record), what = read<uint8_t>(record + 1);
      const auto size = format == kSizedValue ? read<uint16_t>(record + 2) : uint16_t{0};
      record += 4;
      if (end - record < size) break;
      if (size >= 8 && (what == kRegisterCount || what == kFrameSize)) {
        if (KernelResources* const kernel = named_by(read<uint32_t>(record)); kernel != nullptr)
          (what == kRegisterCount ? kernel->registers : kernel->local_bytes) = static_cast<int>(read<uint32_t>(record + 4));
      }
      record += size;
    }
  }
  return kernels;
}

}  // namespace gpucast::vgpu
