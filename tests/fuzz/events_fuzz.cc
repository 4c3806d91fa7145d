// Any bytes at all as an event file: an error, or a replay whose books balance, never a crash. Built with clang and
// -DGPUCAST_FUZZ=ON:
//   build/fuzz/bin/events_fuzz -max_len=8192 -timeout=10 CORPUS tests/fuzz/corpus/events

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "gpucast/error.h"
#include "gpucast/history.h"
#include "gpucast/replay.h"

namespace {

using namespace gpucast;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check(const AllocatorStats& stats, const std::vector<Segment>& segments) {
  int64_t reserved_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t active_bytes = 0;
  uint64_t end = 0;
  for (const Segment& segment : segments) {
    require(segment.address >= end);
    end = segment.address;
    for (const SegmentBlock& block : segment.blocks) {
      require(block.address == end && block.size_bytes > 0);
      end += static_cast<uint64_t>(block.size_bytes);
      if (block.state == BlockState::allocated) allocated_bytes += block.size_bytes;
      if (block.state != BlockState::inactive) active_bytes += block.size_bytes;
    }
    require(end == segment.address + static_cast<uint64_t>(segment.size_bytes));
    reserved_bytes += segment.size_bytes;
  }
  require(reserved_bytes == stats.reserved_bytes && stats.peak_reserved_bytes >= reserved_bytes);
  require(allocated_bytes == stats.allocated_bytes && stats.peak_allocated_bytes >= allocated_bytes);
  require(active_bytes == stats.active_bytes);
}

void replay_all(const History& history) {
  const struct {
    const char* alloc_conf;
    std::optional<int64_t> capacity_bytes;
    AddressPolicy addresses;
  } kRuns[] = {
      {"", std::nullopt, AddressPolicy::linux_driver},
      {"", int64_t{64} << 20, AddressPolicy::ascending},
      {"expandable_segments:True", int64_t{200} << 20, AddressPolicy::ascending},
      {"max_split_size_mb:21,garbage_collection_threshold:0.5,per_process_memory_fraction:0.9", int64_t{128} << 20,
       AddressPolicy::linux_driver},
      {"backend:bfc,coalesce_regions:True", int64_t{128} << 20, AddressPolicy::ascending},
  };
  for (const auto& run : kRuns) {
    ReplaySettings settings;
    settings.alloc_conf = run.alloc_conf;
    settings.capacity_bytes = run.capacity_bytes;
    settings.addresses = run.addresses;
    const ReplayResult result = replay(history, settings, [](const ReplayStep& step) {
      if (step.op % 32 == 31) check(step.allocator.stats(), step.allocator.segments());
    });
    check(result.stats, result.segments);
    if (run.capacity_bytes) require(result.stats.peak_reserved_bytes <= *run.capacity_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = memfd_create("events", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) return -1;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  try {
    looks_like_events(path);
    replay_all(read_events(path));
  } catch (const gpucast::Error& error) {
    if (std::string(error.what()).find("internal error") != std::string::npos) __builtin_trap();
  }
  close(file);
  return 0;
}
