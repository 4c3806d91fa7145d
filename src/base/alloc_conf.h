// The settings of PyTorch's CUDACachingAllocator, as PYTORCH_CUDA_ALLOC_CONF gives them, and the two rules that follow
// from them: how a request is rounded, and whether the rest of a free block is split off.
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
  static constexpr int64_t kSmallBytes = 1 << 20;  // the largest request that the small pool serves
  static constexpr int64_t kSmallSegmentBytes = 2 << 20;
  static constexpr int64_t kMinLargeBytes = 10 << 20;  // from here on a request gets a segment of its own size
  static constexpr int64_t kRoundLargeBytes = 2 << 20;

  int64_t max_split_size_bytes = std::numeric_limits<int64_t>::max();
  int64_t max_non_split_rounding_bytes = 20 << 20;  // how much larger a block above max_split_size may be than the request
  int64_t large_segment_bytes = 20 << 20;           // segments for large requests below kMinLargeBytes
  double garbage_collection_threshold = 0;          // of the allowed memory; 0: never
  double per_process_memory_fraction = 1;
  bool expandable_segments = false;
  bool throw_on_cudamalloc_oom = false;
  int torch_minor = 99;  // of PyTorch 2.x: some rules differ (docs/explanation/allocator.md)
  // Divisions between two powers of two, for sizes from 1 MiB (the first, also for what is smaller) to 32 GiB and more
  // (the last). 0 and 1: round to 512 B only.
  std::array<int64_t, 16> roundup_power2_divisions = {};
  std::vector<std::string> unknown;  // settings that were not understood, for a warning

  // The size of the block that a request of `size_bytes` asks for.
  int64_t round_size(int64_t size_bytes) const;

  // Does a block of `rounded_bytes` taken from a free one leave the rest `rest_bytes` as a free block of its own?
  // (Whether the segment is expandable counts, not the setting: that may change while the script runs.)
  bool splits(int64_t rounded_bytes, int64_t rest_bytes, bool expandable_segment) const;
};

// "a:1,b:[2:3,4:5]" -> "a:1", "b:[2:3,4:5]": cut at commas, but not inside brackets. Empty ones are left out.
std::vector<std::string_view> split_settings(std::string_view text);

// Reads PYTORCH_CUDA_ALLOC_CONF.
//
// Never throws: what cannot be read is listed in `unknown`. `torch_version` ("2.6.0+cu124") matters because the meaning of
// ">" in roundup_power2_divisions changed.
AllocConf parse_alloc_conf(std::string_view text, std::string_view torch_version);

}  // namespace gpucast
