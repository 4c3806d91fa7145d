#include "src/occupancy/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace gpucast {
namespace {

constexpr uint16_t kMachineCuda = 190;
// Since sm_90, a kernel's shared memory begins with a part that the driver reserves. cuFuncGetAttribute does not count that part.
constexpr unsigned kReservesShared = 90;
constexpr uint64_t kReservedBytes = 1024;

// 90 for sm_90. CUDA 13 moved this field.
unsigned architecture(const Elf64_Ehdr& header) {
  constexpr unsigned char kMoved = 8;
  return header.e_ident[EI_ABIVERSION] >= kMoved ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff;
}

// Records of .nv.info (of all kernels) and .nv.info.KERNEL: a byte for the format of the value, a byte for its meaning, and two bytes with
// its size or with the value itself.
constexpr uint8_t kHalfValue = 3, kSizedValue = 4;
constexpr uint8_t kFrameSize = 0x11, kRegisterCount = 0x2f;     // of the symbol that the record names
constexpr uint8_t kMostThreads = 0x05, kParameterBytes = 0x19;  // x, y, z; bytes of all parameters of a kernel
constexpr uint8_t kParameter = 0x17;                            // a zero, the parameter's number and offset, its size from bit 18 on
constexpr uint16_t kMostParameters = 1024;
constexpr uint64_t kLongestName = 1 << 16;
constexpr std::string_view kText = ".text.", kShared = ".nv.shared.", kInfo = ".nv.info";

template <typename T>
T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

std::map<std::string, KernelResources> kernels_of_cubin(const void* image, size_t size_bytes, ParametersByKernel* parameters) {
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
  // A string must end within its table.
  const auto string_at = [&](const Elf64_Shdr& table, uint64_t offset) -> std::string_view {
    if (!inside(table.sh_offset, table.sh_size) || offset >= table.sh_size) return {};
    const char* const begin = file + table.sh_offset + offset;
    return {begin, strnlen(begin, std::min<uint64_t>(table.sh_size - offset, kLongestName))};
  };
  const auto name_of = [&](const Elf64_Shdr& section) { return string_at(sections[header.e_shstrndx], section.sh_name); };
  const auto number = [](uint64_t value) { return static_cast<int>(std::min<uint64_t>(value, INT32_MAX)); };
  const uint64_t reserved_bytes = architecture(header) >= kReservesShared ? kReservedBytes : 0;
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
      found->second.static_shared_bytes = number(section.sh_size - std::min(section.sh_size, reserved_bytes));
  }
  // Calls take(what, half, value, size) for each record of a section.
  uint64_t left_bytes = size_bytes;  // sections that overlap are not read again and again
  const auto each_record = [&](const Elf64_Shdr& section, const auto& take) {
    if (!inside(section.sh_offset, section.sh_size) || section.sh_size > left_bytes) return;
    left_bytes -= section.sh_size;
    const char* record = file + section.sh_offset;
    const char* const end = record + section.sh_size;
    while (end - record >= 4) {
      const auto format = read<uint8_t>(record), what = read<uint8_t>(record + 1);
      const auto half = read<uint16_t>(record + 2);
      const uint16_t size = format == kSizedValue ? half : uint16_t{0};
      record += 4;
      if (end - record < size) break;
      take(format, what, half, record, size);
      record += size;
    }
  };
  const bool has_symbols = symbols != nullptr && symbols->sh_link < sections.size() && inside(symbols->sh_offset, symbols->sh_size);
  const auto named_by = [&](uint32_t index) -> KernelResources* {
    if (!has_symbols || index >= symbols->sh_size / sizeof(Elf64_Sym)) return nullptr;
    const auto symbol = read<Elf64_Sym>(file + symbols->sh_offset + uint64_t{index} * sizeof(Elf64_Sym));
    const auto found = kernels.find(std::string(string_at(sections[symbols->sh_link], symbol.st_name)));
    return found != kernels.end() ? &found->second : nullptr;
  };
  for (const Elf64_Shdr& section : sections) {
    const std::string_view name = name_of(section);
    if (name == kInfo) {
      each_record(section, [&](uint8_t, uint8_t what, uint16_t, const char* value, uint16_t size) {
        if (size < 8 || (what != kRegisterCount && what != kFrameSize)) return;
        if (KernelResources* const kernel = named_by(read<uint32_t>(value)); kernel != nullptr)
          (what == kRegisterCount ? kernel->registers : kernel->local_bytes) = number(read<uint32_t>(value + 4));
      });
    } else if (name.starts_with(kInfo) && name.size() > kInfo.size() && name[kInfo.size()] == '.') {
      const auto found = kernels.find(std::string(name.substr(kInfo.size() + 1)));
      if (found == kernels.end()) continue;
      KernelResources& kernel = found->second;
      each_record(section, [&](uint8_t format, uint8_t what, uint16_t half, const char* value, uint16_t size) {
        if (format == kHalfValue && what == kParameterBytes) kernel.parameter_bytes = half;
        if (format == kSizedValue && what == kParameter && size >= 12) {
          const auto ordinal = read<uint16_t>(value + 4), offset = read<uint16_t>(value + 6);
          if (ordinal < 64 && read<uint32_t>(value + 8) >> 18 == 8) kernel.wide_parameters |= uint64_t{1} << ordinal;
          if (parameters != nullptr && ordinal < kMostParameters) {
            std::vector<KernelParameter>& places = (*parameters)[found->first];
            if (places.size() <= ordinal) places.resize(ordinal + size_t{1});
            places[ordinal] = {offset, static_cast<uint16_t>(std::min<uint32_t>(read<uint32_t>(value + 8) >> 18, UINT16_MAX))};
          }
        }
        if (what == kMostThreads && size >= 12) {
          uint64_t threads = 1;
          for (size_t i = 0; i < 3; ++i) threads = std::min<uint64_t>(threads * read<uint32_t>(value + 4 * i), INT32_MAX);
          kernel.most_threads = number(threads);
        }
      });
    }
  }
  return kernels;
}

}  // namespace gpucast
