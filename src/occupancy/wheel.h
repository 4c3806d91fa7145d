// The resources of all kernels of an installed PyTorch. They are read from its libraries once, and then from a cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/occupancy/fatbin.h"
#include "src/occupancy/kernel_resources.h"

namespace gpucast {

// By mangled name, for one compute capability.
class KernelTable {
 public:
  KernelTable() = default;
  KernelTable(KernelTable&&) = default;
  KernelTable& operator=(KernelTable&&) = default;
  KernelTable(const KernelTable&) = delete;  // rows point into the names
  KernelTable& operator=(const KernelTable&) = delete;

  struct Row {
    uint32_t name_offset = 0, name_bytes = 0;
    KernelResources resources;
  };

  // If two kernels have one name, the larger one is kept, because the name may mean either.
  void add(std::string_view name, const KernelResources& resources);
  const KernelResources* find(std::string_view name) const;  // nullptr: there is none
  size_t size() const { return rows_.size(); }
  const std::vector<Row>& rows() const { return rows_; }
  std::string_view name(const Row& row) const { return std::string_view(names_).substr(row.name_offset, row.name_bytes); }

  // The bytes of a cache file. False: `bytes` is no cache file, or a damaged one.
  std::string to_bytes() const;
  bool from_bytes(std::string_view bytes);

 private:
  void index() const;

  std::string names_;
  std::vector<Row> rows_;
  // By hash of the name; made at the first use.
  mutable std::unordered_multimap<size_t, uint32_t> by_hash_;
};

struct WheelKernels {
  KernelTable kernels;
  FatbinCounts counts;  // zeros if the kernels came from the cache
  bool cached = false;
};

// `folder`: the folder `torch` of an installed PyTorch, or one library. `cache`: a folder for the cache; "": no cache.
// Throws Error: no such folder, a library that is cut off or foreign, no GPU code at all, none for this capability.
WheelKernels wheel_kernels(const std::string& folder, int major, int minor, const std::string& cache);

// The PyTorch release in `folder`: "2.14.1+cu130"; "": unknown.
std::string wheel_release(const std::string& folder);

// ~/.cache/gpucast/kernels, or in XDG_CACHE_HOME; "": there is no home directory.
std::string kernel_cache_folder();

}  // namespace gpucast
