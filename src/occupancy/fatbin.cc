#include "src/occupancy/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

namespace gpucast {
namespace {

// A larger entry is not unpacked. PyTorch's largest entries have 30 MiB.
constexpr uint64_t kLargestImage = uint64_t{512} << 20;
// An entry that claims a higher ratio is not unpacked. LZ4 packs at most 255 bytes into one; zstd packs about 20 bytes of machine code into
// one.
constexpr uint64_t kMostRatio = 1024;
constexpr uint32_t kLz4Flag = 0x2000, kZstdFlag = 0x8000, kThisArchFlag = 0x100000;

template <typename T>
T read_at(const char* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

}  // namespace

bool read_fatbin_entry(std::string_view bytes, FatbinEntry* entry) {
  if (bytes.size() < kFatbinEntryBytes) return false;
  const char* const from = bytes.data();
  const auto kind = read_at<uint16_t>(from, 0);
  const auto flags = read_at<uint32_t>(from, 40);
  entry->kind = kind == 1 ? FatbinEntry::Kind::ptx : kind == 2 ? FatbinEntry::Kind::cubin : FatbinEntry::Kind::other;
  entry->packing = (flags & kZstdFlag) != 0  ? FatbinEntry::Packing::zstd
                   : (flags & kLz4Flag) != 0 ? FatbinEntry::Packing::lz4
                                             : FatbinEntry::Packing::none;
  entry->header_bytes = read_at<uint32_t>(from, 4);
  entry->payload_bytes = read_at<uint64_t>(from, 8);
  entry->packed_bytes = read_at<uint32_t>(from, 16);
  entry->arch = static_cast<int>(std::min<uint32_t>(read_at<uint32_t>(from, 28), INT32_MAX));
  entry->this_arch_only = (flags & kThisArchFlag) != 0;
  entry->image_bytes = read_at<uint64_t>(from, 56);
  if (entry->packing == FatbinEntry::Packing::none) entry->packed_bytes = entry->image_bytes = entry->payload_bytes;
  return entry->header_bytes >= kFatbinEntryBytes && entry->packed_bytes <= entry->payload_bytes;
}

int choose_cubin(const std::vector<FatbinEntry>& entries, int major, int minor) {
  const int card = major * 10 + minor;
  int best = -1;
  for (size_t i = 0; i < entries.size(); ++i) {
    const FatbinEntry& entry = entries[i];
    if (entry.kind != FatbinEntry::Kind::cubin || entry.arch / 10 != major || entry.arch > card) continue;
    if (entry.this_arch_only && entry.arch != card) continue;
    const FatbinEntry* const other = best >= 0 ? &entries[static_cast<size_t>(best)] : nullptr;
    if (other == nullptr || entry.arch > other->arch || (entry.arch == other->arch && entry.this_arch_only && !other->this_arch_only))
      best = static_cast<int>(i);
  }
  return best;
}

bool unpack_fatbin_entry(const FatbinEntry& entry, std::string_view packed, std::vector<char>* image) {
  if (packed.size() != entry.packed_bytes || entry.image_bytes > kLargestImage || entry.image_bytes / kMostRatio > entry.packed_bytes)
    return false;
  image->resize(entry.image_bytes);
  switch (entry.packing) {
    case FatbinEntry::Packing::none:
      std::copy(packed.begin(), packed.end(), image->begin());
      return true;
    case FatbinEntry::Packing::lz4:
      return LZ4_decompress_safe(packed.data(), image->data(), static_cast<int>(packed.size()), static_cast<int>(image->size())) ==
             static_cast<int>(image->size());
    case FatbinEntry::Packing::zstd:
      return ZSTD_decompress(image->data(), image->size(), packed.data(), packed.size()) == image->size();
  }
  return false;
}

bool kernels_of_fatbin(std::string_view container, int major, int minor, const std::function<void(std::string_view image)>& take) {
  FatbinHeader header;
  if (container.size() < sizeof header) return false;
  std::memcpy(&header, container.data(), sizeof header);
  if (header.magic != kFatbinMagic || header.header_bytes < sizeof header || header.header_bytes > container.size()) return false;
  std::string_view rest = container.substr(header.header_bytes);
  rest = rest.substr(0, std::min<uint64_t>(rest.size(), header.entries_bytes));
  std::vector<FatbinEntry> entries;
  std::vector<std::string_view> payloads;
  FatbinEntry entry;
  while (read_fatbin_entry(rest, &entry) && entry.header_bytes <= rest.size() && entry.payload_bytes <= rest.size() - entry.header_bytes) {
    entries.push_back(entry);
    payloads.push_back(rest.substr(entry.header_bytes, entry.packed_bytes));
    rest.remove_prefix(entry.header_bytes + entry.payload_bytes);
  }
  const int chosen = choose_cubin(entries, major, minor);
  std::vector<char> image;
  if (chosen < 0 || !unpack_fatbin_entry(entries[static_cast<size_t>(chosen)], payloads[static_cast<size_t>(chosen)], &image)) return false;
  take({image.data(), image.size()});
  return true;
}

}  // namespace gpucast
