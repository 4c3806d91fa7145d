// The settings of PyTorch's CUDACachingAllocator from PYTORCH_CUDA_ALLOC_CONF, and the two rules that depend on them: how a request is
// rounded, and whether the rest of a free block is split off.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace gpucast {

struct AllocConf {
  static constexpr int64_t kMinBlockBytes = 512;
  static constexpr int64_t kSmallBytes = 1 << 20;  // the largest request from the small pool
  static constexpr int64_t kSmallSegmentBytes = 2 << 20;
  static constexpr int64_t kMinLargeBytes = 10 << 20;  // requests of this size or more get their own segment
  static constexpr int64_t kRoundLargeBytes = 2 << 20;

  int64_t max_split_size_bytes = std::numeric_limits<int64_t>::max();
  int64_t max_non_split_rounding_bytes = 20 << 20;  // the limit on the extra size of a block above max_split_size
  int64_t large_segment_bytes = 20 << 20;           // segments for large requests below kMinLargeBytes
  double garbage_collection_threshold = 0;          // of the allowed memory; 0: never
  double per_process_memory_fraction = 1;
  bool expandable_segments = false;
  bool throw_on_cudamalloc_oom = false;
  int torch_minor = 99;  // of PyTorch 2.x: some rules differ (docs/explanation/allocator.md)
  // Divisions between two powers of two, for sizes from 1 MiB (the first, also for smaller sizes) to 32 GiB and more (the last). 0 and 1:
  // round only to 512 B.
  std::array<int64_t, 16> roundup_power2_divisions = {};
  std::vector<std::string> unknown;  // unknown settings, for a warning

  // The size of the block for a request of `size_bytes`.
  int64_t round_size(int64_t size_bytes) const;

  // Whether a free block that serves a request of `rounded_bytes` is split, so that its rest `rest_bytes` becomes a free block.
  // (`expandable` describes the segment, not the setting: the setting may change while the script runs.)
  bool splits(int64_t rounded_bytes, int64_t rest_bytes, bool expandable_segment) const;
};

// "a:1,b:[2:3,4:5]" -> "a:1", "b:[2:3,4:5]": cut at commas outside brackets. Empty parts are left out.
std::vector<std::string_view> split_settings(std::string_view text);

// Reads PYTORCH_CUDA_ALLOC_CONF.
//
// Never throws: `unknown` lists what cannot be read. `torch_version` ("2.6.0+cu124") matters because releases differ in the meaning of ">"
// in roundup_power2_divisions.
AllocConf parse_alloc_conf(std::string_view text, std::string_view torch_version);

}  // namespace gpucast
