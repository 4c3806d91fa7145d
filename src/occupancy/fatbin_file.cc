#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gpucast/error.h"
#include "src/occupancy/fatbin.h"

namespace gpucast {
namespace {

class File {
 public:
  explicit File(const std::string& path) : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat info {};
    if (descriptor_ < 0 || fstat(descriptor_, &info) != 0) {
      const int problem = errno;
      if (descriptor_ >= 0) close(descriptor_);
      throw Error(fmt::format("cannot read the library: {}", std::strerror(problem)), path_, "is this the folder of an installed PyTorch?");
    }
    size_bytes_ = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  uint64_t size_bytes() const { return size_bytes_; }
  bool holds(uint64_t offset, uint64_t size) const { return offset <= size_bytes_ && size <= size_bytes_ - offset; }

  // Reads all of it or throws Error.
  void read(uint64_t offset, char* to, size_t size) const {
    for (size_t done = 0; done < size;) {
      const ssize_t got = pread(descriptor_, to + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw Error(fmt::format("cannot read the library: {}", std::strerror(errno)), path_, "is the disk well?");
      if (got == 0) ends_early(offset + done);
      done += static_cast<size_t>(got);
    }
  }
  [[noreturn]] void ends_early(uint64_t offset) const {
    throw Error("the library is cut off", fmt::format("{}, byte {} of {}", path_, offset, size_bytes_),
                "install PyTorch again: pip install --force-reinstall torch");
  }

 private:
  std::string path_;
  int descriptor_;
  uint64_t size_bytes_ = 0;
};

struct Range {
  uint64_t offset = 0, size = 0;
};

std::vector<Range> fatbin_sections(const File& file, const std::string& path) {
  const auto foreign = [&](const char* what) {
    return Error(what, path, "name the folder of an installed PyTorch, or one of its libraries");
  };
  Elf64_Ehdr header;
  if (!file.holds(0, sizeof header)) throw foreign("this is no library: it is too short");
  file.read(0, reinterpret_cast<char*>(&header), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) throw foreign("this is no library: it is no ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum)
    throw foreign("this library has no sections that can be read");
  const uint64_t table_bytes = uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  if (!file.holds(header.e_shoff, table_bytes)) file.ends_early(std::min<uint64_t>(header.e_shoff, file.size_bytes()));
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  file.read(header.e_shoff, reinterpret_cast<char*>(sections.data()), table_bytes);
  const Elf64_Shdr& names = sections[header.e_shstrndx];
  constexpr uint64_t kMostNames = 16 << 20;
  if (!file.holds(names.sh_offset, names.sh_size) || names.sh_size > kMostNames) throw foreign("this library has no names of sections");
  std::string text(names.sh_size, '\0');
  file.read(names.sh_offset, text.data(), text.size());
  std::vector<Range> out;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name >= text.size()) continue;
    const std::string_view name = text.c_str() + section.sh_name;  // ends within the text, or at the text's end
    // nvcc -rdc=true puts its fat binaries into the second section.
    if ((name != ".nv_fatbin" && name != "__nv_relfatbin") || section.sh_type == SHT_NOBITS) continue;
    if (!file.holds(section.sh_offset, section.sh_size)) file.ends_early(file.size_bytes());
    out.push_back({section.sh_offset, section.sh_size});
  }
  if (out.empty()) throw foreign("this library has no GPU code");
  return out;
}

}  // namespace

FatbinCounts read_fatbins(const std::string& path, int major, int minor, const std::function<void(std::string_view image)>& take) {
  const File file(path);
  FatbinCounts counts;
  std::vector<FatbinEntry> entries;
  std::vector<uint64_t> payloads;  // where each entry's payload begins
  std::string packed;
  std::vector<char> image;
  for (const Range& section : fatbin_sections(file, path)) {
    const uint64_t end = section.offset + section.size;
    for (uint64_t at_byte = section.offset; end - at_byte >= sizeof(FatbinHeader);) {
      FatbinHeader header;
      file.read(at_byte, reinterpret_cast<char*>(&header), sizeof header);
      if (header.magic != kFatbinMagic) {  // padding between two containers
        at_byte += std::min<uint64_t>(8, end - at_byte);
        continue;
      }
      if (header.header_bytes < sizeof header || header.header_bytes > end - at_byte ||
          header.entries_bytes > end - at_byte - header.header_bytes)
        throw Error("the library's GPU code is damaged: a container is longer than its section", fmt::format("{}, byte {}", path, at_byte),
                    "install PyTorch again: pip install --force-reinstall torch");
      ++counts.containers;
      uint64_t entry_byte = at_byte + header.header_bytes;
      const uint64_t last = entry_byte + header.entries_bytes;
      entries.clear();
      payloads.clear();
      while (last - entry_byte >= kFatbinEntryBytes) {
        char bytes[kFatbinEntryBytes];
        file.read(entry_byte, bytes, sizeof bytes);
        FatbinEntry entry;
        if (!read_fatbin_entry({bytes, sizeof bytes}, &entry) || entry.header_bytes > last - entry_byte ||
            entry.payload_bytes > last - entry_byte - entry.header_bytes) {
          ++counts.unreadable;
          break;
        }
        entries.push_back(entry);
        payloads.push_back(entry_byte + entry.header_bytes);
        entry_byte = payloads.back() + entry.payload_bytes;
      }
      at_byte = last;
      const int chosen = choose_cubin(entries, major, minor);
      if (chosen < 0) {
        ++counts.without_code;
        continue;
      }
      const FatbinEntry& entry = entries[static_cast<size_t>(chosen)];
      packed.resize(entry.packed_bytes);
      file.read(payloads[static_cast<size_t>(chosen)], packed.data(), packed.size());
      if (!unpack_fatbin_entry(entry, packed, &image)) {
        ++counts.unreadable;
        continue;
      }
      ++counts.cubins;
      take({image.data(), image.size()});
    }
  }
  return counts;
}

}  // namespace gpucast
