// Fat binaries: nvcc compresses a kernel's code for several cards into one section of the program or library.
//
// NVIDIA's headers do not contain the layout; these are the fields on which tools that read fat binaries agree. A container is a header and
// entries, each with its own header. A section holds one container after another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gpucast {

struct FatbinEntry {
  enum class Kind : uint8_t { other, ptx, cubin } kind = Kind::other;
  enum class Packing : uint8_t { none, lz4, zstd } packing = Packing::none;
  int arch = 0;                 // 86 for sm_86
  bool this_arch_only = false;  // sm_90a: runs on no other architecture
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;  // in the container, padding included
  uint64_t packed_bytes = 0;   // without the padding
  uint64_t image_bytes = 0;    // unpacked
};

inline constexpr uint32_t kFatbinMagic = 0xba55ed50;
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t entries_bytes;
};
static_assert(sizeof(FatbinHeader) == 16);
// The part of an entry's header that is in every release.
inline constexpr size_t kFatbinEntryBytes = 64;

// From the first bytes of an entry, at least kFatbinEntryBytes. False: no entry, or its lengths are impossible.
bool read_fatbin_entry(std::string_view bytes, FatbinEntry* entry);

// The index of the machine code that a card of this capability runs: the same major, and the highest minor that is not above the card's. Of
// two equal ones, the one made for this architecture only. -1: there is none.
int choose_cubin(const std::vector<FatbinEntry>& entries, int major, int minor);

// False: the packed bytes do not match the entry.
bool unpack_fatbin_entry(const FatbinEntry& entry, std::string_view packed, std::vector<char>* image);

// Calls take(image) with the machine code that a card of this capability would run, from a container in memory. False: there is none, or it
// is damaged.
bool kernels_of_fatbin(std::string_view container, int major, int minor, const std::function<void(std::string_view image)>& take);

// What was found in a library's fat binaries.
struct FatbinCounts {
  int64_t containers = 0;
  int64_t cubins = 0;        // that the card would run
  int64_t without_code = 0;  // containers with nothing for this card
  int64_t unreadable = 0;    // cubins that are damaged
};

// Calls take(image) with the machine code that a card of this capability would run, for each container in an ELF file's section of fat
// binaries. The file is read piece by piece, and only that code is unpacked.
// Throws Error: the file cannot be read, is no ELF file of 64 bits, has no such section, or ends before the section does.
FatbinCounts read_fatbins(const std::string& path, int major, int minor, const std::function<void(std::string_view image)>& take);

}  // namespace gpucast
