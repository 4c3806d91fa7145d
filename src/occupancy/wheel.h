// The kernels of an installed PyTorch: what each takes of a multiprocessor, read from its libraries once and then from a cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/occupancy/fatbin.h"
#include "src/occupancy/kernel_resources.h"

namespace gpucast {

// By mangled name, as a card of one compute capability would run them.
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

  // Of two kernels of one name the larger counts: an unlucky name may stand for either.
  void add(std::string_view name, const KernelResources& resources);
  const KernelResources* find(std::string_view name) const;  // nullptr: there is none
  size_t size() const { return rows_.size(); }
  const std::vector<Row>& rows() const { return rows_; }
  std::string_view name(const Row& row) const { return std::string_view(names_).substr(row.name_offset, row.name_bytes); }

  // As bytes of a cache file. False: `bytes` is none, or damaged.
  std::string to_bytes() const;
  bool from_bytes(std::string_view bytes);

 private:
  void index() const;

  std::string names_;
  std::vector<Row> rows_;
  // By hash of the name; made when first asked for.
  mutable std::unordered_multimap<size_t, uint32_t> by_hash_;
};

struct WheelKernels {
  KernelTable kernels;
  FatbinCounts counts;  // zeros where it came from the cache
  bool cached = false;
};

// `folder`: the folder `torch` of an installed PyTorch, or one library. `cache`: a folder for what was read; "": none is kept.
// Throws Error: no such folder, a library that is cut off or foreign, no GPU code at all, none for this capability.
WheelKernels wheel_kernels(const std::string& folder, int major, int minor, const std::string& cache);

// The release that `folder` holds: "2.14.1+cu130"; "" where it does not say.
std::string wheel_release(const std::string& folder);

// ~/.cache/gpucast/kernels, as XDG_CACHE_HOME says; "": there is no home.
std::string kernel_cache_folder();

}  // namespace gpucast
