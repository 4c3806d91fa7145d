#include "src/lifetime/lifetime.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace gpucast {
namespace {

// A piece of reserved memory. The pieces of a segment cover it without gaps.
struct Piece {
  enum class State : uint8_t { free, used, freeing };  // freeing: its free was requested, but a stream may still use it
  int64_t size_bytes = 0;
  int32_t segment = -1;
  BlockId block;
  State state = State::free;
};

struct Segment {
  uint64_t address = 0;
  int64_t size_bytes = 0;
  uint64_t stream = 0;
  bool expandable = false;  // then address and size are unused: all mapped memory of a stream is one "segment"
  bool known = true;        // false: invented for an allocation outside of all segments, and not reserved
};

class Follower {
 public:
  Follower(const std::vector<AllocatorEvent>& events, const AllocConf& conf, Problems* problems, const StartState& start)
      : events_(events), conf_(conf), problems_(problems) {
    for (const SnapshotSegment& segment : start.segments) add_start(segment);
    result_.start_reserved_bytes = reserved_;
  }

  Lifetimes follow() {
    Lifetimes& out = result_;
    out.allocated.resize(events_.size());
    out.reserved.resize(events_.size());
    for (at_ = 0; at_ < events_.size(); ++at_) {
      const AllocatorEvent& event = events_[at_];
      switch (event.kind) {
        case EventKind::alloc:
          alloc(event);
          break;
        case EventKind::free_requested:
          free_requested(event);
          break;
        case EventKind::free_completed:
          free_completed(event);
          break;
        case EventKind::segment_alloc:
          segment_alloc(event);
          break;
        case EventKind::segment_free:
          segment_free(event);
          break;
        case EventKind::segment_map:
          segment_map(event);
          break;
        case EventKind::segment_unmap:
          segment_unmap(event);
          break;
        case EventKind::oom:
          out.ooms.push_back({at_, event.size_bytes, static_cast<int64_t>(event.address)});
          break;
      }
      out.reserved[at_] = reserved_;
    }
    sum_up_allocated();
    find_peak(out.allocated, out.start_allocated_bytes, &out.peak_allocated);
    find_peak(out.reserved, out.start_reserved_bytes, &out.peak_reserved);
    list_segments();
    return std::move(result_);
  }

 private:
  using Pieces = std::map<uint64_t, Piece>;

  // Adds a segment that existed before the first event.
  void add_start(const SnapshotSegment& segment) {
    auto id = static_cast<int32_t>(segments_.size());
    if (segment.expandable) {
      id = expandable_.try_emplace(segment.stream, id).first->second;
    } else {
      segment_at_[segment.address] = id;
    }
    if (id == static_cast<int32_t>(segments_.size()))
      segments_.push_back({segment.address, segment.size_bytes, segment.stream, segment.expandable, true});
    reserved_ += segment.size_bytes;
    for (const SnapshotBlock& block : segment.blocks) {
      Piece piece{block.size_bytes, id, BlockId(), Piece::State::free};
      if (block.state == SnapshotBlockState::active_pending_free) piece.state = Piece::State::freeing;
      if (block.state == SnapshotBlockState::active_allocated) {
        piece.state = Piece::State::used;
        piece.block = BlockId(static_cast<int64_t>(result_.blocks.size()));
        result_.blocks.push_back(
            {block.address, block.size_bytes, block.requested_bytes, segment.stream, block.stack, 0, Block::kNever, true});
      }
      const auto placed = pieces_.emplace(block.address, piece).first;
      if (piece.state == Piece::State::free) merge(placed);
    }
  }

  void problem(Problem problem) {
    const AllocatorEvent& event = events_[at_];
    problems_->add(problem, fmt::format("allocator event {}, address {:#x}, {} bytes", at_, event.address, event.size_bytes));
  }

  static uint64_t end_of(Pieces::iterator piece) { return piece->first + static_cast<uint64_t>(piece->second.size_bytes); }

  // The piece that contains `address`, or end().
  Pieces::iterator holding(uint64_t address) {
    auto piece = pieces_.upper_bound(address);
    if (piece == pieces_.begin()) return pieces_.end();
    --piece;
    return address < end_of(piece) ? piece : pieces_.end();
  }

  // Cuts a free piece so that one piece starts at `address`, which is inside it.
  Pieces::iterator cut(Pieces::iterator piece, uint64_t address) {
    if (piece->first == address) return piece;
    Piece rest = piece->second;
    rest.size_bytes = static_cast<int64_t>(end_of(piece) - address);
    piece->second.size_bytes = static_cast<int64_t>(address - piece->first);
    return pieces_.emplace(address, rest).first;
  }

  void alloc(const AllocatorEvent& event) {
    auto piece = holding(event.address);
    if (piece != pieces_.end() && piece->second.state != Piece::State::free) {
      // The memory after the block's requested bytes was split off although the rule keeps it (a restored CUDA graph pool does that).
      const auto used = static_cast<int64_t>(event.address - piece->first);
      // A block that was already waiting for its stream before the first event is not in the list of blocks.
      Block* owner = piece->second.block.valid() ? &result_.blocks[piece->second.block.index()] : nullptr;
      if (owner == nullptr || used == 0 || used < owner->requested_bytes) {
        problem(Problem::segment_overlap);
        // Two live blocks at one address: the free of the earlier one must be missing.
        end_block(piece);
        piece->second.state = Piece::State::free;
      } else {
        problem(Problem::split_unexpected);
        Piece rest = piece->second;
        rest.state = Piece::State::free;
        rest.block = BlockId();
        rest.size_bytes = piece->second.size_bytes - used;
        piece->second.size_bytes = used;
        owner->size_bytes = used;
        piece = pieces_.emplace(event.address, rest).first;
      }
    }
    const int64_t rounded = conf_.round_size(event.size_bytes);
    if (piece != pieces_.end()) {
      if (piece->first != event.address) {
        problem(Problem::split_unexpected);
        piece = cut(piece, event.address);
      }
      if (piece->second.size_bytes < event.size_bytes) piece = pieces_.end();
    }
    if (piece == pieces_.end()) {
      problem(Problem::alloc_outside_segment);
      piece = outside(event, rounded);
      if (piece == pieces_.end()) return lost(event, rounded);
    }
    // The piece is smaller than the rounded size: the settings changed while the script ran.
    const int64_t size = std::min(rounded, piece->second.size_bytes);
    const int64_t rest = piece->second.size_bytes - size;
    if (rest > 0 && conf_.splits(size, rest, segments_[static_cast<size_t>(piece->second.segment)].expandable)) {
      cut(piece, event.address + static_cast<uint64_t>(size));
    }
    piece->second.state = Piece::State::used;
    piece->second.block = add_block(event, piece->second.size_bytes);
  }

  // Invents a segment for an allocation outside of all segments; end() when other pieces are in the way.
  Pieces::iterator outside(const AllocatorEvent& event, int64_t size) {
    const uint64_t end = event.address + static_cast<uint64_t>(size);
    const auto next = pieces_.lower_bound(event.address);
    if (end < event.address || holding(event.address) != pieces_.end() || (next != pieces_.end() && next->first < end))
      return pieces_.end();
    segments_.push_back({event.address, size, event.stream, false, false});
    return pieces_.emplace(event.address, Piece{size, static_cast<int32_t>(segments_.size() - 1), BlockId(), Piece::State::free}).first;
  }

  // Counts a block as allocated until it is freed, although it is in no segment.
  void lost(const AllocatorEvent& event, int64_t size) { lost_[event.address] = add_block(event, size); }

  BlockId add_block(const AllocatorEvent& event, int64_t size) {
    result_.blocks.push_back({event.address, size, event.size_bytes, event.stream, event.stack, at_, Block::kNever, false});
    return BlockId(static_cast<int64_t>(result_.blocks.size()) - 1);
  }

  void end_block(Pieces::iterator piece) {
    if (piece->second.state == Piece::State::used) result_.blocks[piece->second.block.index()].free_event = at_;
  }

  void free_requested(const AllocatorEvent& event) {
    const auto piece = pieces_.find(event.address);
    if (piece == pieces_.end() || piece->second.state != Piece::State::used) {
      const auto lost = lost_.find(event.address);
      if (lost == lost_.end()) return problem(Problem::free_unknown);
      result_.blocks[lost->second.index()].free_event = at_;
      lost_.erase(lost);
      return;
    }
    end_block(piece);
    piece->second.state = Piece::State::freeing;
  }

  void free_completed(const AllocatorEvent& event) {
    auto piece = pieces_.find(event.address);
    if (piece == pieces_.end() || piece->second.state == Piece::State::free) return;  // free_requested has reported that already
    if (piece->second.state == Piece::State::used) {
      problem(Problem::free_unknown);
      end_block(piece);
    }
    piece->second.state = Piece::State::free;
    piece->second.block = BlockId();
    if (!segments_[static_cast<size_t>(piece->second.segment)].known) {
      pieces_.erase(piece);
      return;
    }
    merge(piece);
  }

  bool mergeable(Pieces::iterator left, Pieces::iterator right) const {
    return left->second.state == Piece::State::free && right->second.state == Piece::State::free &&
           left->second.segment == right->second.segment && end_of(left) == right->first;
  }

  void merge(Pieces::iterator piece) {
    if (piece != pieces_.begin()) {
      const auto left = std::prev(piece);
      if (mergeable(left, piece)) {
        left->second.size_bytes += piece->second.size_bytes;
        pieces_.erase(piece);
        piece = left;
      }
    }
    const auto right = std::next(piece);
    if (right != pieces_.end() && mergeable(piece, right)) {
      piece->second.size_bytes += right->second.size_bytes;
      pieces_.erase(right);
    }
  }

  // Removes all pieces that overlap [address, address+size). Returns false when there were any.
  bool clear(uint64_t address, int64_t size) {
    bool was_clear = true;
    auto piece = holding(address);
    if (piece == pieces_.end()) piece = pieces_.lower_bound(address);
    while (piece != pieces_.end() && piece->first < address + static_cast<uint64_t>(size)) {
      was_clear = false;
      end_block(piece);
      const Segment& segment = segments_[static_cast<size_t>(piece->second.segment)];
      if (segment.known && segment.expandable) {
        reserved_ -= piece->second.size_bytes;
      }
      piece = pieces_.erase(piece);
    }
    return was_clear;
  }

  void segment_alloc(const AllocatorEvent& event) {
    if (event.size_bytes == 0) return problem(Problem::bad_event);
    if (!clear(event.address, event.size_bytes)) problem(Problem::segment_overlap);
    const auto old = segment_at_.find(event.address);
    if (old != segment_at_.end()) {  // its segment_free was not recorded
      reserved_ -= segments_[static_cast<size_t>(old->second)].size_bytes;
    }
    segments_.push_back({event.address, event.size_bytes, event.stream, false, true});
    const auto id = static_cast<int32_t>(segments_.size() - 1);
    segment_at_[event.address] = id;
    pieces_.emplace(event.address, Piece{event.size_bytes, id, BlockId(), Piece::State::free});
    reserved_ += event.size_bytes;
  }

  void segment_free(const AllocatorEvent& event) {
    const auto found = segment_at_.find(event.address);
    if (found == segment_at_.end()) return problem(Problem::free_unknown);
    const int32_t id = found->second;
    const Segment& segment = segments_[static_cast<size_t>(id)];
    auto piece = pieces_.lower_bound(event.address);
    bool in_use = false;
    while (piece != pieces_.end() && piece->first < segment.address + static_cast<uint64_t>(segment.size_bytes)) {
      if (piece->second.segment != id) {
        ++piece;
        continue;
      }
      in_use = in_use || piece->second.state == Piece::State::used;
      end_block(piece);
      piece = pieces_.erase(piece);
    }
    if (in_use) problem(Problem::segment_free_in_use);
    reserved_ -= segment.size_bytes;
    segment_at_.erase(found);
  }

  // Memory that is mapped next to mapped memory of the same stream belongs to the same range.
  void segment_map(const AllocatorEvent& event) {
    if (event.size_bytes == 0) return problem(Problem::bad_event);
    if (!clear(event.address, event.size_bytes)) problem(Problem::segment_overlap);
    auto [expandable, is_new] = expandable_.try_emplace(event.stream, static_cast<int32_t>(segments_.size()));
    if (is_new) segments_.push_back({0, 0, event.stream, true, true});
    reserved_ += event.size_bytes;
    merge(pieces_.emplace(event.address, Piece{event.size_bytes, expandable->second, BlockId(), Piece::State::free}).first);
  }

  void segment_unmap(const AllocatorEvent& event) {
    const uint64_t end = event.address + static_cast<uint64_t>(event.size_bytes);
    auto piece = holding(event.address);
    if (piece == pieces_.end() || end_of(piece) < end || !segments_[static_cast<size_t>(piece->second.segment)].expandable) {
      return problem(Problem::free_unknown);
    }
    if (piece->second.state != Piece::State::free) return problem(Problem::segment_free_in_use);
    piece = cut(piece, event.address);
    if (end_of(piece) > end) cut(piece, end);
    pieces_.erase(piece);
    reserved_ -= event.size_bytes;
  }

  // The last step, because a block's size may have been corrected after its birth.
  void sum_up_allocated() {
    std::vector<int64_t>& sum = result_.allocated;
    for (const Block& block : result_.blocks) {
      (block.before_start ? result_.start_allocated_bytes : sum[block.alloc_event]) += block.size_bytes;
      if (block.free_event != Block::kNever) sum[block.free_event] -= block.size_bytes;
    }
    int64_t total = result_.start_allocated_bytes;
    for (int64_t& value : sum) value = total += value;
  }

  static void find_peak(const std::vector<int64_t>& curve, int64_t start_bytes, Peak* peak) {
    const auto top = std::max_element(curve.begin(), curve.end());
    if (start_bytes > 0 && (top == curve.end() || *top < start_bytes)) {
      *peak = {start_bytes, 0, true};
    } else if (top != curve.end() && *top > 0) {
      *peak = {*top, static_cast<uint32_t>(top - curve.begin()), false};
    }
  }

  void list_segments() {
    for (const auto& [address, id] : segment_at_) {
      const Segment& segment = segments_[static_cast<size_t>(id)];
      result_.segments.push_back({address, segment.size_bytes, segment.stream});
    }
    const RecordedSegment* open = nullptr;
    for (const auto& [address, piece] : pieces_) {
      const Segment& segment = segments_[static_cast<size_t>(piece.segment)];
      if (!segment.expandable) {
        open = nullptr;
        continue;
      }
      if (open != nullptr && open->address + static_cast<uint64_t>(open->size_bytes) == address && open->stream == segment.stream) {
        result_.segments.back().size_bytes += piece.size_bytes;
      } else {
        result_.segments.push_back({address, piece.size_bytes, segment.stream});
      }
      open = &result_.segments.back();
    }
    std::sort(result_.segments.begin(), result_.segments.end());
  }

  const std::vector<AllocatorEvent>& events_;
  const AllocConf& conf_;
  Problems* problems_;
  Lifetimes result_;
  Pieces pieces_;
  std::vector<Segment> segments_;
  std::map<uint64_t, int32_t> segment_at_;            // segments from cudaMalloc, by address
  std::unordered_map<uint64_t, int32_t> expandable_;  // by stream
  std::unordered_map<uint64_t, BlockId> lost_;
  int64_t reserved_ = 0;
  uint32_t at_ = 0;
};

}  // namespace

Lifetimes follow_blocks(const std::vector<AllocatorEvent>& events, const AllocConf& conf, Problems* problems, const StartState& start) {
  return Follower(events, conf, problems, start).follow();
}

namespace {

// Compares with a snapshot's segments and blocks in use, one by one, including `requested`: it distinguishes a block from the rest of its
// neighbour.
Comparison compare_with_snapshot(const Trace& trace, const Lifetimes& lifetimes) {
  Comparison result;
  result.possible = true;
  std::vector<RecordedSegment> segments;
  segments.reserve(trace.end_segments.size());
  for (const SnapshotSegment& segment : trace.end_segments) segments.push_back({segment.address, segment.size_bytes, segment.stream});
  if (segments != lifetimes.segments) {
    result.differences.push_back(fmt::format("segments at the end: {} by the history, {} in the snapshot, not all alike",
                                             lifetimes.segments.size(), segments.size()));
  }
  struct Used {
    uint64_t address;
    int64_t size_bytes, requested_bytes;
    auto operator<=>(const Used&) const = default;  // NOLINT(modernize-use-nullptr): false alarm
  };
  std::vector<Used> ours, theirs;
  for (const Block& block : lifetimes.blocks) {
    if (block.free_event == Block::kNever) ours.push_back({block.address, block.size_bytes, block.requested_bytes});
  }
  for (const SnapshotSegment& segment : trace.end_segments) {
    for (const SnapshotBlock& block : segment.blocks) {
      if (block.state == SnapshotBlockState::active_allocated) theirs.push_back({block.address, block.size_bytes, block.requested_bytes});
    }
  }
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  const auto different = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  if (different.first != ours.end() || different.second != theirs.end()) {
    const auto text = [](auto at, auto end) {
      return at == end ? std::string("none") : fmt::format("{} bytes at {:#x}", at->size_bytes, at->address);
    };
    result.differences.push_back(
        fmt::format("blocks in use at the end: {} by the history, {} in the snapshot; the first that differs: {} and {}", ours.size(),
                    theirs.size(), text(different.first, ours.end()), text(different.second, theirs.end())));
  }
  result.matches_recorded = result.differences.empty();
  return result;
}

}  // namespace

Comparison compare_with_recorded(const Trace& trace, const Lifetimes& lifetimes) {
  if (trace.header.source == "snapshot") return compare_with_snapshot(trace, lifetimes);
  Comparison result;
  if (!trace.end.torch_stats) return result;
  const TorchStats& stats = *trace.end.torch_stats;
  const auto compare = [&](const char* what, int64_t ours, const std::optional<int64_t>& theirs) {
    if (!theirs) return;
    result.possible = true;
    if (ours != *theirs)
      result.differences.push_back(fmt::format("{}: {} bytes by the history, {} by PyTorch's counters", what, ours, *theirs));
  };
  compare("allocated at the end", lifetimes.allocated.empty() ? 0 : lifetimes.allocated.back(), stats.allocated_bytes);
  compare("reserved at the end", lifetimes.reserved.empty() ? 0 : lifetimes.reserved.back(), stats.reserved_bytes);
  // The capture layer saves peaks before a script resets them.
  compare("peak allocated", lifetimes.peak_allocated.bytes, stats.peak_allocated_bytes);
  compare("peak reserved", lifetimes.peak_reserved.bytes, stats.peak_reserved_bytes);
  if (trace.end.segments) {
    std::vector<RecordedSegment> recorded = *trace.end.segments;
    std::sort(recorded.begin(), recorded.end());
    result.possible = true;
    if (recorded != lifetimes.segments) {
      result.differences.push_back(fmt::format("segments at the end: {} by the history, {} by PyTorch's list, not all alike",
                                               lifetimes.segments.size(), recorded.size()));
    }
  }
  result.matches_recorded = result.possible && result.differences.empty();
  return result;
}

}  // namespace gpucast
