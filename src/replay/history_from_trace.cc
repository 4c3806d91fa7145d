// Finds the requests to the allocator from the allocator's recorded actions.
//
//   alloc                                  -> alloc
//   free_requested free_completed          -> free
//   free_requested ... free_completed      -> free_later ... complete: another stream still used the block
//   segment_free ...                       -> empty_cache, unless an allocation that needed memory gave it back
//   segment_alloc, segment_map             -> part of the allocation that follows
//   oom                                    -> an allocation that failed
//
// A capture's marks say where private pools are used: begin_pool, end_pool, release_pool.
//
// A free of a block that is not in use, and an end of a free that was never requested, give no op: events are missing there.

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "gpucast/history.h"
#include "gpucast/replay.h"
#include "src/base/alloc_conf.h"
#include "src/lifetime/start_state.h"

namespace gpucast {
namespace {

static_assert(static_cast<int>(BlockState::allocated) == static_cast<int>(SnapshotBlockState::active_allocated));
static_assert(static_cast<int>(BlockState::pending_free) == static_cast<int>(SnapshotBlockState::active_pending_free));
static_assert(static_cast<int>(BlockState::inactive) == static_cast<int>(SnapshotBlockState::inactive));

bool is_release(EventKind kind) { return kind == EventKind::segment_free || kind == EventKind::segment_unmap; }
bool is_pool(OpKind kind) { return kind == OpKind::begin_pool || kind == OpKind::end_pool || kind == OpKind::release_pool; }
bool is_growth(EventKind kind) { return kind == EventKind::segment_alloc || kind == EventKind::segment_map; }

class Converter {
 public:
  explicit Converter(const Trace& trace) : trace_(trace), events_(trace.events), never_gives_back_(never_gives_back(trace)) {
    for (const Mark& mark : trace.marks) {
      if (mark.pool != 0) pool_marks_.push_back(&mark);
    }
  }

  History convert() {
    out_.path = trace_.path;
    out_.source = trace_.header.source;
    out_.torch = trace_.process.torch;
    out_.alloc_conf = trace_.process.alloc_conf;
    out_.device_total_bytes = trace_.header.gpu.total_memory_bytes;
    out_.end_segments = trace_.end.segments;
    if (trace_.header.source == "snapshot") {
      out_.end_segments.emplace();
      for (const SnapshotSegment& segment : trace_.end_segments) {
        out_.end_segments->push_back({segment.address, segment.size_bytes, segment.stream});
      }
      std::sort(out_.end_segments->begin(), out_.end_segments->end());
      begin_in_the_middle();
    }
    out_.actions.reserve(events_.size());
    out_.ops.reserve(events_.size() / 2);
    for (size_t i = 0; i < events_.size();) {
      use_pools(i);
      const size_t end = one_op(i);
      for (; i < end; ++i) {
        allocs_ += events_[i].kind == EventKind::alloc ? 1 : 0;
        frees_ += events_[i].kind == EventKind::free_requested ? 1 : 0;
      }
    }
    if (pool_uses_.size() * out_.streams.size() > kMaxPoolStreams) {
      for (AllocOp& made : out_.ops) {
        if (is_pool(made.kind)) made.kind = OpKind::nothing;
      }
    }
    out_.first_action.push_back(static_cast<uint32_t>(out_.actions.size()));
    return std::move(out_);
  }

 private:
  void begin_in_the_middle() {
    Problems ignored;  // the report counts them when it reads the same trace
    const AllocConf conf = parse_alloc_conf(out_.alloc_conf, out_.torch);
    std::map<std::pair<int64_t, int64_t>, uint32_t> pools;
    for (const SnapshotSegment& recorded : reconstruct_start(events_, trace_.end_segments, conf, &ignored).segments) {
      Segment segment;
      segment.address = recorded.address;
      segment.size_bytes = recorded.size_bytes;
      segment.stream = stream(recorded.stream);
      segment.large = recorded.large;
      segment.expandable = recorded.expandable;
      if (recorded.pool != std::pair<int64_t, int64_t>{0, 0}) {
        segment.pool = pools.try_emplace(recorded.pool, static_cast<uint32_t>(pools.size() + 1)).first->second;
      }
      for (const SnapshotBlock& block : recorded.blocks) {
        segment.blocks.push_back({block.address, block.size_bytes, block.requested_bytes, static_cast<BlockState>(block.state)});
        const bool in_use = block.state != SnapshotBlockState::inactive;
        if (in_use) (block.state == SnapshotBlockState::active_allocated ? in_use_ : waiting_)[block.address] = out_.id_count;
        out_.start_ids.push_back(in_use ? out_.id_count++ : UINT32_MAX);
      }
      out_.start.push_back(std::move(segment));
    }
  }

  // Whether no allocation gave memory back in order to get its own. PyTorch counts such allocations, unless the script reset its counters.
  // An allocation that collects garbage is not counted.
  static bool never_gives_back(const Trace& trace) {
    const bool counted =
        std::none_of(trace.marks.begin(), trace.marks.end(), [](const Mark& mark) { return mark.kind == MarkKind::stats_reset; });
    const bool collects = trace.process.alloc_conf.find("garbage_collection_threshold") != std::string::npos;
    const auto& stats = trace.end.torch_stats;
    return stats && stats->alloc_retries == 0 && stats->ooms == 0 && counted && !collects;
  }

  // The pool marks that come before event `at`. A mark's position among segment events, which no mark counts, comes from its time.
  void use_pools(size_t at) {
    for (; next_pool_mark_ < pool_marks_.size(); ++next_pool_mark_) {
      const Mark& mark = *pool_marks_[next_pool_mark_];
      if (mark.allocs > allocs_ || mark.frees > frees_) return;
      if (is_release(events_[at].kind) && events_[at].time_us < mark.time_us) return;
      const bool captures = mark.kind == MarkKind::capture_begin;
      const OpKind kind = captures || mark.kind == MarkKind::pool_begin ? OpKind::begin_pool
                          : mark.kind == MarkKind::pool_end             ? OpKind::end_pool
                                                                        : OpKind::release_pool;
      int64_t& uses = pool_uses_[mark.pool];
      if (kind == OpKind::release_pool && uses == 0) continue;
      uses += kind == OpKind::begin_pool ? 1 : kind == OpKind::release_pool ? -1 : 0;
      out_.ops.push_back({.kind = kind, .stream = captures ? kCapturedStreams : AllocOp::kEveryStream, .id = mark.pool});
      out_.first_action.push_back(static_cast<uint32_t>(out_.actions.size()));
    }
  }

  // Reads the events of one op, from event `at`; returns the index of the next op's first event.
  size_t one_op(size_t at) {
    const AllocatorEvent& event = events_[at];
    switch (event.kind) {
      case EventKind::free_requested: {
        const bool now =
            at + 1 < events_.size() && events_[at + 1].kind == EventKind::free_completed && events_[at + 1].address == event.address;
        const uint32_t id = remove_id(&in_use_, event.address);
        if (id == kUnknown && waiting_.contains(event.address)) return op(OpKind::nothing, at, at + 1, id, event);
        if (!now && id != kUnknown) waiting_[event.address] = id;
        return op(now ? OpKind::free : OpKind::free_later, at, now ? at + 2 : at + 1, id, event);
      }
      case EventKind::free_completed:
        return op(OpKind::complete, at, at + 1, remove_id(&waiting_, event.address), event);
      case EventKind::alloc:
      case EventKind::oom:
        return allocation(at, at);
      case EventKind::segment_alloc:
      case EventKind::segment_map:
      case EventKind::segment_free:
      case EventKind::segment_unmap:
        return segments(at);
    }
    return at + 1;
  }

  // A sequence of segment events: part of the allocation after it, or a cache that was emptied on request.
  size_t segments(size_t at) {
    size_t end = at;
    while (end < events_.size() && (is_release(events_[end].kind) || is_growth(events_[end].kind))) ++end;
    const bool allocation_follows = end < events_.size() && (events_[end].kind == EventKind::alloc || events_[end].kind == EventKind::oom);
    size_t releases = at;
    while (releases < end && is_release(events_[releases].kind)) ++releases;
    if (releases > at) {
      // Memory was given back first. The following allocation did that, if it then needed memory from the driver.
      const bool needed = allocation_follows && (releases < end || events_[end].kind == EventKind::oom);
      if (!needed || emptied_on_request(at, releases, events_[end])) return op(OpKind::empty_cache, at, releases, 0, events_[at]);
    }
    if (!allocation_follows) return op(OpKind::nothing, at, end, 0, events_[at]);
    return allocation(at, end);
  }

  // Whether releases `begin` to `end` do not belong to the following allocation. All actions of an allocation have its stack, or all have
  // none. A release on request has no stack of its own; PyTorch writes the stack of the segment's allocation, if it knows it. That may be
  // the same stack, but then the allocation would have used a segment that is large enough.
  bool emptied_on_request(size_t begin, size_t end, const AllocatorEvent& allocation) const {
    if (never_gives_back_) return true;
    const bool splits_all = out_.alloc_conf.find("max_split_size") == std::string::npos;
    return std::any_of(events_.begin() + begin, events_.begin() + end, [&](const AllocatorEvent& release) {
      const bool both_large = release.kind == EventKind::segment_free && release.size_bytes > AllocConf::kSmallSegmentBytes &&
                              allocation.size_bytes > AllocConf::kSmallBytes;
      const bool would_do = both_large && release.stream == allocation.stream && release.size_bytes >= allocation.size_bytes;
      return release.stack != allocation.stack || (splits_all && would_do);
    });
  }

  // Events `first` to `at`; `at` is the alloc or oom.
  size_t allocation(size_t first, size_t at) {
    const AllocatorEvent& event = events_[at];
    if (event.kind == EventKind::oom) {
      const size_t end = op(OpKind::alloc, first, at + 1, UINT32_MAX, event);
      out_.ops.back().failed_when_recorded = true;
      return end;
    }
    const uint32_t id = out_.id_count++;
    in_use_[event.address] = id;
    return op(OpKind::alloc, first, at + 1, id, event);
  }

  size_t op(OpKind kind, size_t begin, size_t end, uint32_t id, const AllocatorEvent& event) {
    AllocOp made;
    made.kind = id == kUnknown ? OpKind::nothing : kind;
    made.stream = stream(event.stream);
    made.id = id;
    made.size_bytes = event.size_bytes;
    out_.ops.push_back(made);
    out_.first_action.push_back(static_cast<uint32_t>(out_.actions.size()));
    for (size_t i = begin; i < end; ++i) {
      out_.actions.push_back({events_[i].kind, stream(events_[i].stream), events_[i].address, events_[i].size_bytes});
    }
    return end;
  }

  StreamIndex stream(uint64_t handle) {
    if (!out_.streams.empty() && out_.streams[last_stream_] == handle) return last_stream_;
    const auto found = std::find(out_.streams.begin(), out_.streams.end(), handle);
    last_stream_ = static_cast<StreamIndex>(found - out_.streams.begin());
    if (found == out_.streams.end()) {
      if (out_.streams.size() == kCapturedStreams) return last_stream_ = 0;
      out_.streams.push_back(handle);
    }
    return last_stream_;
  }

  using Ids = std::unordered_map<uint64_t, uint32_t>;  // address -> block

  static uint32_t remove_id(Ids* ids, uint64_t address) {
    const auto it = ids->find(address);
    if (it == ids->end()) return kUnknown;
    const uint32_t id = it->second;
    ids->erase(it);
    return id;
  }

  static constexpr uint32_t kUnknown = UINT32_MAX - 1;  // freed while not in use
  const Trace& trace_;
  const std::vector<AllocatorEvent>& events_;
  const bool never_gives_back_;
  History out_;
  std::vector<const Mark*> pool_marks_;
  size_t next_pool_mark_ = 0;
  std::map<uint32_t, int64_t> pool_uses_;  // by pool
  int64_t allocs_ = 0, frees_ = 0;         // events so far
  Ids in_use_, waiting_;                   // waiting: freed, but another stream is not done with them
  StreamIndex last_stream_ = 0;
};

// Old snapshots do not name their release. Releases have different rules, so this is the release whose rules explain the most events.
void find_likely_release(History* history) {
  ReplaySettings settings;
  settings.alloc_conf = history->alloc_conf;
  settings.addresses = AddressPolicy::recorded;
  std::string best;
  int64_t furthest = -1;
  for (const char* release : {"2.14", "2.6"}) {
    history->torch = release;
    const ReplayResult result = replay(*history, settings);
    if (result.matches_recorded.value_or(false)) return;
    if (result.difference_op > furthest) {
      furthest = result.difference_op;
      best = release;
    }
  }
  history->torch = best;
}

}  // namespace

History history_from_trace(const Trace& trace) {
  History history = Converter(trace).convert();
  if (history.torch.empty() && history.source == "snapshot") find_likely_release(&history);
  return history;
}

}  // namespace gpucast
