// Fat binaries: nvcc puts a kernel's code for several cards side by side, compressed, into a section of the program or library.
//
// The layout is not in NVIDIA's headers; these are the fields that tools which read fat binaries agree on. A container is a header and
// entries, each with a header of its own; a section holds one container after the other.
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
  bool this_arch_only = false;  // sm_90a: runs on no other
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;  // in the container, padding included
  uint64_t packed_bytes = 0;   // of those, what counts
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

// From the first bytes of an entry, at least kFatbinEntryBytes. False: no entry, or one whose lengths cannot be.
bool read_fatbin_entry(std::string_view bytes, FatbinEntry* entry);

// The machine code that a card of this capability runs: of the same major and the highest minor not above the card's; of two alike the one
// made for just this card. -1: there is none.
int choose_cubin(const std::vector<FatbinEntry>& entries, int major, int minor);

// False: what is packed is not what the entry says.
bool unpack_fatbin_entry(const FatbinEntry& entry, std::string_view packed, std::vector<char>* image);

// Calls take(image) for the machine code that a card of this capability would run, of a container in memory. False: there is none, or it is
// damaged.
bool kernels_of_fatbin(std::string_view container, int major, int minor, const std::function<void(std::string_view image)>& take);

// What reading a library's fat binaries came across.
struct FatbinCounts {
  int64_t containers = 0;
  int64_t cubins = 0;        // chosen for the card
  int64_t without_code = 0;  // containers with nothing for this card
  int64_t unreadable = 0;    // cubins that are damaged
};

// Calls take(image) for the machine code that a card of this capability would run, of each container in an ELF file's section of fat
// binaries. A file is read piece by piece, and only what the card would run is unpacked.
// Throws Error: the file cannot be read, is no ELF file of 64 bits, has no such section, or ends before it does.
FatbinCounts read_fatbins(const std::string& path, int major, int minor, const std::function<void(std::string_view image)>& take);

}  // namespace gpucast
