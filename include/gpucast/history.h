// A program's requests to its allocator, without the allocator's own actions: the input of a replay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/allocator.h"
#include "gpucast/trace.h"

namespace gpucast {

enum class OpKind : uint8_t {
  alloc,          // block `id`, `size_bytes`, on `stream`
  free,           // block `id`, once; does nothing if its allocation failed
  free_later,     // block `id`, still used by another stream ...
  complete,       // ... until here, once
  record_stream,  // block `id` is also used on `stream`
  hold_stream,    // from here on, work submitted to `stream` does not finish
  finish_stream,  // it finishes; kEveryStream: on all streams
  empty_cache,
  set_fraction,  // `size_bytes` holds the bits of the double
  begin_pool,    // `id` is the private pool; `stream`, kCapturedStreams or kEveryStream
  end_pool,
  release_pool,
  nothing,
};

constexpr size_t kMaxPoolStreams = 1'000'000;  // of a history, pools times streams: a pool has a state for every stream

struct AllocOp {
  static constexpr StreamIndex kEveryStream = UINT16_MAX;
  OpKind kind = OpKind::nothing;
  bool failed_when_recorded = false;  // alloc: it ended in out of memory, so no op frees it
  StreamIndex stream = 0;
  uint32_t id = 0;
  int64_t size_bytes = 0;
};
static_assert(sizeof(AllocOp) == 16);

struct History {
  std::string path;
  std::string source;              // "vgpu", "snapshot", "events"
  std::string torch;               // release, "" unknown
  std::string alloc_conf;          // the settings of the recorded run
  int64_t device_total_bytes = 0;  // the recorded card's memory, 0: unknown
  std::vector<AllocOp> ops;
  uint32_t id_count = 0;
  std::vector<uint64_t> streams;         // the file's name of each stream: cudaStream_t, or a small number
  std::vector<uint64_t> stream_handles;  // their cudaStream_t, which gives the allocator's order; empty: as `streams`
  std::vector<uint64_t> stream_ids;      // PyTorch's ids of them (torch.cuda.Stream.stream_id); empty: as the handles
  std::vector<uint64_t> id_names;        // the file's name of each id; empty: the id itself

  // For a history that begins in the middle: the blocks at its beginning, and the ids of those in use (UINT32_MAX: free), block by block.
  std::vector<Segment> start;
  std::vector<uint32_t> start_ids;

  // The actions of the recorded allocator in each op: actions[first_action[op]] to actions[first_action[op + 1]]. Empty for event files.
  std::vector<AllocatorAction> actions;
  std::vector<uint32_t> first_action;
  std::optional<std::vector<RecordedSegment>> end_segments;
  bool partial() const { return !start.empty(); }
};

// For captures and snapshots. If a snapshot begins in the middle, its first state is reconstructed from its end. O(events).
History history_from_trace(const Trace& trace);

// The event format of docs/reference/event-format.md, plain or gzip. Throws Error with the number of an unreadable line.
History read_events(const std::string& path);
bool looks_like_events(const std::string& path);

}  // namespace gpucast
