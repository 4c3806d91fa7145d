#include "src/occupancy/wheel.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "gpucast/error.h"
#include "src/occupancy/cubin.h"

namespace gpucast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "gpucast kernels 1\n";
constexpr size_t kWordBytes = 8;

// FNV-1a on words of 8 bytes. It detects damage, not attacks.
uint64_t checksum(std::string_view bytes, uint64_t hash = 14695981039346656037u) {
  for (; bytes.size() >= kWordBytes; bytes.remove_prefix(kWordBytes)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), kWordBytes);
    hash = (hash ^ word) * 1099511628211u;
  }
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

struct CacheHeader {
  uint64_t rows = 0, names_bytes = 0, checksum = 0;  // of the bytes after the header
};

// The libraries of an installed PyTorch with GPU code, in the order of their names.
std::vector<std::string> libraries_of(const std::string& folder) {
  std::error_code error;
  if (fs::is_regular_file(folder, error)) return {folder};
  if (!fs::is_directory(folder, error))
    throw Error("there is no PyTorch here", folder, "--wheel names the folder `torch` of an installed PyTorch, or one of its libraries");
  std::vector<std::string> out;
  // A virtual environment's site-packages folder is accepted, too.
  for (const char* inside : {"lib", "torch/lib"}) {
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / inside, error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("libtorch_cuda") && name.ends_with(".so")) out.push_back(entry.path().string());
    }
    if (!out.empty()) break;
  }
  if (out.empty())
    throw Error("this PyTorch has no GPU code: there is no libtorch_cuda.so in it", folder,
                "is it a build for the CPU only? --wheel names another");
  std::sort(out.begin(), out.end());
  return out;
}

// A hash that identifies libraries without reading them wholly: from their names, sizes, beginnings (with the build id) and ends (with the
// table of sections).
std::string identity_of(const std::vector<std::string>& libraries) {
  constexpr size_t kEdgeBytes = 64 << 10;
  uint64_t hash = checksum(kMagic);
  for (const std::string& path : libraries) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = in.tellg();
    if (!in || size < 0) throw Error("cannot read the library", path, "is this the folder of an installed PyTorch?");
    hash = checksum(fs::path(path).filename().string(), hash);
    hash = checksum(std::to_string(size), hash);
    for (const std::streamoff from : {std::streamoff{0}, std::max<std::streamoff>(0, size - static_cast<std::streamoff>(kEdgeBytes))}) {
      std::string edge(kEdgeBytes, '\0');
      in.clear();
      in.seekg(from);
      in.read(edge.data(), static_cast<std::streamsize>(edge.size()));
      edge.resize(static_cast<size_t>(in.gcount()));
      hash = checksum(edge, hash);
    }
  }
  return fmt::format("{:016x}", hash);
}

std::string all_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  if (size <= 0) return "";
  std::string out(static_cast<size_t>(size), '\0');
  in.seekg(0);
  in.read(out.data(), size);
  out.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return out;
}

// Writes the whole file or nothing. A cache that cannot be written is ignored.
void keep(const std::string& path, const std::string& bytes) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const std::string beside = fmt::format("{}.{}", path, getpid());
  {
    std::ofstream out(beside, std::ios::binary);
    out << bytes;
    if (!out.flush()) {
      fs::remove(beside, error);
      return;
    }
  }
  fs::rename(beside, path, error);
  if (error) fs::remove(beside, error);
}

}  // namespace

void KernelTable::add(std::string_view name, const KernelResources& resources) {
  index();
  const size_t hash = std::hash<std::string_view>()(name);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    Row& row = rows_[it->second];
    if (this->name(row) != name) continue;
    KernelResources& known = row.resources;
    known.registers = std::max(known.registers, resources.registers);
    known.static_shared_bytes = std::max(known.static_shared_bytes, resources.static_shared_bytes);
    known.local_bytes = std::max(known.local_bytes, resources.local_bytes);
    return;
  }
  if (names_.size() + name.size() > UINT32_MAX) return;
  by_hash_.emplace(hash, static_cast<uint32_t>(rows_.size()));
  rows_.push_back({static_cast<uint32_t>(names_.size()), static_cast<uint32_t>(name.size()), resources});
  names_ += name;
}

const KernelResources* KernelTable::find(std::string_view name) const {
  index();
  const auto [first, last] = by_hash_.equal_range(std::hash<std::string_view>()(name));
  for (auto it = first; it != last; ++it)
    if (this->name(rows_[it->second]) == name) return &rows_[it->second].resources;
  return nullptr;
}

void KernelTable::index() const {
  if (by_hash_.size() == rows_.size()) return;
  by_hash_.clear();
  by_hash_.reserve(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) by_hash_.emplace(std::hash<std::string_view>()(name(rows_[i])), static_cast<uint32_t>(i));
}

std::string KernelTable::to_bytes() const {
  std::string body(reinterpret_cast<const char*>(rows_.data()), rows_.size() * sizeof(Row));
  body += names_;
  const CacheHeader header{rows_.size(), names_.size(), checksum(body)};
  std::string out(kMagic);
  out.append(reinterpret_cast<const char*>(&header), sizeof header);
  return out += body;
}

bool KernelTable::from_bytes(std::string_view bytes) {
  static_assert(std::is_trivially_copyable_v<Row>);
  CacheHeader header;
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + sizeof header) return false;
  bytes.remove_prefix(kMagic.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes.remove_prefix(sizeof header);
  if (header.rows > bytes.size() / sizeof(Row) || header.names_bytes != bytes.size() - header.rows * sizeof(Row) ||
      checksum(bytes) != header.checksum)
    return false;
  std::vector<Row> rows(header.rows);
  if (!rows.empty()) std::memcpy(rows.data(), bytes.data(), rows.size() * sizeof(Row));
  for (const Row& row : rows)
    if (row.name_offset > header.names_bytes || row.name_bytes > header.names_bytes - row.name_offset) return false;
  rows_ = std::move(rows);
  names_ = bytes.substr(rows_.size() * sizeof(Row));
  by_hash_.clear();
  return true;
}

WheelKernels wheel_kernels(const std::string& folder, int major, int minor, const std::string& cache) {
  const std::vector<std::string> libraries = libraries_of(folder);
  const std::string file = cache.empty() ? "" : fmt::format("{}/{}-sm_{}{}", cache, identity_of(libraries), major, minor);
  WheelKernels out;
  if (!file.empty() && out.kernels.from_bytes(all_of(file))) {
    out.cached = true;
  } else {
    for (const std::string& library : libraries) {
      const FatbinCounts counts = read_fatbins(library, major, minor, [&](std::string_view image) {
        for (const auto& [name, resources] : kernels_of_cubin(image.data(), image.size())) out.kernels.add(name, resources);
      });
      out.counts.containers += counts.containers;
      out.counts.cubins += counts.cubins;
      out.counts.without_code += counts.without_code;
      out.counts.unreadable += counts.unreadable;
    }
    // Damaged libraries are not cached, because they may be repaired later.
    if (!file.empty() && out.counts.unreadable == 0) keep(file, out.kernels.to_bytes());
  }
  if (out.kernels.size() == 0)
    throw Error(out.counts.unreadable > 0 ? "the GPU code of this PyTorch is damaged"
                                          : fmt::format("this PyTorch has no code for compute capability {}.{}", major, minor),
                folder,
                out.counts.unreadable > 0 ? "install it again: pip install --force-reinstall torch"
                                          : "name a card that it runs on, or a newer PyTorch with --wheel");
  return out;
}

std::string wheel_release(const std::string& folder) {
  for (const char* inside : {"version.py", "torch/version.py"}) {
    const std::string text = all_of((fs::path(folder) / inside).string());
    const size_t found = text.find("__version__ = '");
    if (found == std::string::npos) continue;
    const size_t begin = found + std::strlen("__version__ = '");
    return text.substr(begin, text.find('\'', begin) - begin);
  }
  return "";
}

std::string kernel_cache_folder() {
  const char* folder = std::getenv("XDG_CACHE_HOME");
  if (folder != nullptr && *folder == '/') return std::string(folder) + "/gpucast/kernels";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/gpucast/kernels" : "";
}

}  // namespace gpucast
