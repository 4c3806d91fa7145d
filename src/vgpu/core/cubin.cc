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

std::map<std::string, KernelResources> kernels_of_cubin(const void* image, size_t size_bytes) {
  std::map<std::string, KernelResources> kernels;
  const char* const file = static_cast<const char*>(image);
  const auto inside = [&](uint64_t offset, uint64_t size) { return offset <= size_bytes && size <= size_bytes - offset; };
  if (file == nullptr || size_bytes < SELFMAG || std::strncmp(file, ELFMAG, SELFMAG) != 0 || !inside(0, sizeof(Elf64_Ehdr)) ||
      file[EI_CLASS] != ELFCLASS64)
    return kernels;
  const auto header = read<Elf64_Ehdr>(file);
  if (header.e_machine != kMachineCuda || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) return kernels;
  if (!inside(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) return kernels;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), file + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  // Strings end within their table.
  const auto string_at = [&](const Elf64_Shdr& table, uint64_t offset) -> std::string_view {
    if (!inside(table.sh_offset, table.sh_size) || offset >= table.sh_size) return {};
    const char* const begin = file + table.sh_offset + offset;
    return {begin, strnlen(begin, table.sh_size - offset)};
  };
  const auto name_of = [&](const Elf64_Shdr& section) { return string_at(sections[header.e_shstrndx], section.sh_name); };
  const Elf64_Shdr* symbols = nullptr;
  for (const Elf64_Shdr& section : sections) {
    const std::string_view name = name_of(section);
    if (section.sh_type == SHT_SYMTAB) symbols = &section;
    if (name.starts_with(kText)) kernels[std::string(name.substr(kText.size()))].registers = static_cast<int>(section.sh_info >> 24);
  }
  for (const Elf64_Shdr& section : sections) {
    const std::string_view name = name_of(section);
    if (!name.starts_with(kShared)) continue;
    if (const auto found = kernels.find(std::string(name.substr(kShared.size()))); found != kernels.end())
      found->second.static_shared_bytes = static_cast<int>(section.sh_size);
  }
  if (symbols == nullptr || symbols->sh_link >= sections.size() || !inside(symbols->sh_offset, symbols->sh_size)) return kernels;
  const auto named_by = [&](uint32_t index) -> KernelResources* {
    if (index >= symbols->sh_size / sizeof(Elf64_Sym)) return nullptr;
    const auto symbol = read<Elf64_Sym>(file + symbols->sh_offset + uint64_t{index} * sizeof(Elf64_Sym));
    const auto found = kernels.find(std::string(string_at(sections[symbols->sh_link], symbol.st_name)));
    return found != kernels.end() ? &found->second : nullptr;
  };
  for (const Elf64_Shdr& section : sections) {
    if (name_of(section) != kInfo || !inside(section.sh_offset, section.sh_size)) continue;
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
