#include "src/trace/read_snapshot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "gpucast/error.h"
#include "src/trace/pickle.h"
#include "src/trace/snapshot_settings.h"

namespace gpucast {
namespace {

constexpr int64_t kMostSnapshotBytes = int64_t{1} << 44;  // the same limit as in a capture
constexpr const char* kHowToRecord =
    "record it with torch.cuda.memory._record_memory_history() before the model is made, and write it with "
    "torch.cuda.memory._dump_snapshot(FILE)";

// The keys that are read. Their texts are interned first, so that a key's number is its StringId.
enum Key : uint8_t {
  kAction,
  kAddr,
  kAddress,
  kBlocks,
  kDevice,
  kDeviceFree,
  kDeviceTraces,
  kExpandable,
  kFilename,
  kFrames,
  kHistory,
  kLine,
  kName,
  kPoolId,
  kRealSize,
  kRequestedSize,
  kSegmentType,
  kSegments,
  kSettings,
  kSize,
  kStage,
  kState,
  kStream,
  kTime,
  kTotalSize,
  kAnnotations,
  kCompileContext,
  kTorch,
  kHostTraces,
  kEventPoolId,
  kUserMetadata,
  kKeyCount,
};
constexpr const char* kKeys[] = {"action",
                                 "addr",
                                 "address",
                                 "blocks",
                                 "device",
                                 "device_free",
                                 "device_traces",
                                 "is_expandable",
                                 "filename",
                                 "frames",
                                 "history",
                                 "line",
                                 "name",
                                 "segment_pool_id",
                                 "real_size",
                                 "requested_size",
                                 "segment_type",
                                 "segments",
                                 "allocator_settings",
                                 "size",
                                 "stage",
                                 "state",
                                 "stream",
                                 "time_us",
                                 "total_size",
                                 "external_annotations",
                                 "compile_context",
                                 "gpucast_torch",
                                 "host_traces",
                                 "pool_id",
                                 "user_metadata"};
static_assert(std::size(kKeys) == kKeyCount);

// Folds each container of the snapshot to a kind and an index into the folder's table of that kind.
enum class TokenKind : uint8_t {
  frame,
  stack,
  event,
  no_event,
  events,
  block,
  blocks,
  segment,
  segments,
  past,
  annotation,
  annotations,
  pool
};

class SnapshotFolder final : public PickleFolder {
 public:
  SnapshotFolder(const std::string& path, PickleReader* reader, Trace* trace) : path_(path), reader_(*reader), trace_(*trace) {
    for (const char* key : kKeys) trace_.strings.intern(key);
    own_frame_ = trace_.strings.intern(kOwnFrame);
  }

  std::optional<uint64_t> fold(PickleContainer kind, std::span<const PickleValue> items) override {
    if (kind == PickleContainer::dict) return fold_dict(items);
    if (kind == PickleContainer::list) return fold_list(items);
    return fold_tuple(items);
  }

  void finish(PickleValue result, std::optional<int> device);

 private:
  // The items of a list, which were folded one after the other: a range of one table.
  struct Run {
    uint64_t first = 0, count = 0;
  };
  struct FoldedSegment {
    SnapshotSegment segment;  // without blocks
    int64_t device = 0;
    Run blocks;
  };
  struct Past {  // a block's history, in releases before 2.1
    int64_t requested_bytes = 0;
    StackId stack;
  };
  struct FrameHash {
    size_t operator()(const Frame& f) const {
      return std::hash<uint64_t>()(static_cast<uint64_t>(f.file.value) << 32 ^ static_cast<uint64_t>(f.function.value) ^
                                   static_cast<uint64_t>(f.line) * 0x9e3779b97f4a7c15U);
    }
  };
  struct FrameEqual {
    bool operator()(const Frame& a, const Frame& b) const { return a.file == b.file && a.function == b.function && a.line == b.line; }
  };

  // The values of a dict's known keys. As in Python, the last of equal keys counts.
  struct Fields {
    std::array<PickleValue, kKeyCount> values;
    uint64_t present = 0;
    bool has(Key key) const { return (present >> key & 1) != 0; }
    std::optional<PickleValue> get(Key key) const { return has(key) ? std::optional(values[key]) : std::nullopt; }
  };
  static_assert(kKeyCount <= 64);

  static uint64_t token(TokenKind kind, uint64_t index) { return index << 4 | static_cast<uint64_t>(kind); }
  // The index that `value` was folded to, if it was folded to this kind.
  std::optional<uint64_t> index_of(std::optional<PickleValue> value, TokenKind kind) const {
    const std::optional<uint64_t> folded = value ? reader_.folded(*value) : std::nullopt;
    if (!folded || static_cast<TokenKind>(*folded & 15) != kind) return std::nullopt;
    return *folded >> 4;
  }
  std::optional<int64_t> integer(const Fields& fields, Key key) const {
    return fields.has(key) ? reader_.integer(fields.values[key]) : std::nullopt;
  }
  std::optional<uint64_t> address(const Fields& fields, Key key) const {
    return fields.has(key) ? reader_.address(fields.values[key]) : std::nullopt;
  }
  // A byte count; nothing if it is larger than any card.
  std::optional<int64_t> size(const Fields& fields, Key key) const {
    const std::optional<int64_t> bytes = integer(fields, key);
    return bytes && *bytes >= 0 && *bytes <= kMostSnapshotBytes ? bytes : std::nullopt;
  }
  std::string_view text(const Fields& fields, Key key) const {
    const std::optional<StringId> id = fields.has(key) ? reader_.text(fields.values[key]) : std::nullopt;
    return id ? trace_.strings.text(*id) : std::string_view();
  }
  StackId stack(const Fields& fields) const {
    const std::optional<uint64_t> index = index_of(fields.get(kFrames), TokenKind::stack);
    return index ? StackId(static_cast<int64_t>(*index)) : StackId();
  }
  Fields fields_of(std::span<const PickleValue> items) const;

  std::optional<uint64_t> fold_dict(std::span<const PickleValue> items);
  std::optional<uint64_t> fold_list(std::span<const PickleValue> items);
  std::optional<uint64_t> fold_tuple(std::span<const PickleValue> items);
  uint64_t frame(const Fields& fields);
  uint64_t event(const Fields& fields);
  uint64_t block(const Fields& fields);
  std::optional<uint64_t> segment(const Fields& fields);
  uint64_t intern_stack(std::span<const PickleValue> items);
  std::optional<Run> run_of(std::span<const PickleValue> items, TokenKind kind) const;

  int64_t choose_device(std::span<const PickleValue> traces, std::optional<int> wanted) const;
  void take_segments(const Fields& top, int64_t device);
  bool add_blocks(FoldedSegment* folded);
  std::string release(const Fields& top) const;
  void keep_used_texts();

  const std::string& path_;
  PickleReader& reader_;
  Trace& trace_;
  std::vector<SnapshotBlock> blocks_;
  std::vector<FoldedSegment> segments_;
  std::vector<Run> event_runs_, block_runs_, segment_runs_;
  std::vector<Past> pasts_;
  std::vector<std::pair<Annotation, int64_t>> annotations_;  // each with its device
  std::vector<std::pair<int64_t, int64_t>> pools_;
  std::unordered_map<Frame, FrameId, FrameHash, FrameEqual> frame_ids_;
  std::unordered_multimap<uint64_t, StackId> stack_ids_;  // by a hash of their frames
  std::vector<FrameId> frames_of_stack_;
  StringId own_frame_;
  uint64_t event_keys_ = 0;  // bit k is set when some event has key k
};

// ---- one container --------------------------------------------------------------------------------------------------------------

SnapshotFolder::Fields SnapshotFolder::fields_of(std::span<const PickleValue> items) const {
  Fields fields;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::optional<StringId> key = reader_.text(items[i]);
    if (!key || key->value >= kKeyCount) continue;
    fields.values[key->index()] = items[i + 1];
    fields.present |= uint64_t{1} << key->value;
  }
  return fields;
}

std::optional<uint64_t> SnapshotFolder::fold_dict(std::span<const PickleValue> items) {
  const Fields fields = fields_of(items);
  if (fields.has(kAction)) return event(fields);
  if (fields.has(kFilename)) return frame(fields);
  if (fields.has(kTotalSize)) return segment(fields);
  if (fields.has(kState)) return block(fields);
  if (fields.has(kRealSize)) {
    reader_.charge(sizeof(Past));
    pasts_.push_back({size(fields, kRealSize).value_or(0), stack(fields)});
    return token(TokenKind::past, pasts_.size() - 1);
  }
  if (fields.has(kStage)) {
    reader_.charge(sizeof(annotations_[0]));
    Annotation annotation;
    annotation.begins = text(fields, kStage) == "START";
    annotation.name = trace_.strings.intern(text(fields, kName));
    annotation.time_us = integer(fields, kTime).value_or(0);
    annotations_.emplace_back(annotation, integer(fields, kDevice).value_or(0));
    return token(TokenKind::annotation, annotations_.size() - 1);
  }
  return std::nullopt;
}

std::optional<uint64_t> SnapshotFolder::fold_list(std::span<const PickleValue> items) {
  const std::optional<uint64_t> first = items.empty() ? std::nullopt : reader_.folded(items.front());
  if (!first) return std::nullopt;
  const auto add_run = [&](TokenKind of, TokenKind to, std::vector<Run>* runs) -> std::optional<uint64_t> {
    const std::optional<Run> run = run_of(items, of);
    if (!run) return std::nullopt;
    reader_.charge(sizeof(Run));
    runs->push_back(*run);
    return token(to, runs->size() - 1);
  };
  switch (static_cast<TokenKind>(*first & 15)) {
    case TokenKind::frame:
      for (const PickleValue& item : items) {
        if (!index_of(item, TokenKind::frame)) return std::nullopt;
      }
      return token(TokenKind::stack, intern_stack(items));
    case TokenKind::event:
    case TokenKind::no_event:
      return add_run(TokenKind::event, TokenKind::events, &event_runs_);
    case TokenKind::block:
      return add_run(TokenKind::block, TokenKind::blocks, &block_runs_);
    case TokenKind::segment:
      return add_run(TokenKind::segment, TokenKind::segments, &segment_runs_);
    case TokenKind::past:
      return first;  // of a block's history only the last owner is used
    case TokenKind::annotation:
      return token(TokenKind::annotations, 0);  // there is one list with all of them
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> SnapshotFolder::fold_tuple(std::span<const PickleValue> items) {
  const std::optional<int64_t> first = items.size() == 2 ? reader_.integer(items[0]) : std::nullopt;
  const std::optional<int64_t> second = items.size() == 2 ? reader_.integer(items[1]) : std::nullopt;
  if (!first || !second) return std::nullopt;
  const std::pair<int64_t, int64_t> pool = {*first, *second};
  if (pools_.empty() || pools_.back() != pool) {
    reader_.charge(sizeof pool);
    pools_.push_back(pool);
  }
  return token(TokenKind::pool, pools_.size() - 1);
}

// The items must have been folded one after the other, as a pickler writes them. Otherwise an item could be in several lists and count
// several times, and a short file could grow without bounds.
std::optional<SnapshotFolder::Run> SnapshotFolder::run_of(std::span<const PickleValue> items, TokenKind kind) const {
  Run run;
  for (const PickleValue& item : items) {
    if (kind == TokenKind::event && index_of(item, TokenKind::no_event)) continue;
    const std::optional<uint64_t> index = index_of(item, kind);
    if (!index) return std::nullopt;
    if (run.count == 0) run.first = *index;
    if (*index != run.first + run.count) {
      throw Error("the snapshot lists the same event, block or segment twice, or out of order", reader_.describe_position(),
                  "this is no memory snapshot of PyTorch, or it was changed");
    }
    ++run.count;
  }
  return run;
}

uint64_t SnapshotFolder::frame(const Fields& fields) {
  Frame frame;
  frame.file = trace_.strings.intern(text(fields, kFilename));
  frame.function = trace_.strings.intern(text(fields, kName));
  frame.line = integer(fields, kLine).value_or(0);
  const auto [found, is_new] = frame_ids_.try_emplace(frame, static_cast<int64_t>(trace_.frames.size()));
  if (is_new) {
    reader_.charge(sizeof(Frame) + 64);
    trace_.frames.push_back(frame);
  }
  return token(TokenKind::frame, found->second.index());
}

uint64_t SnapshotFolder::intern_stack(std::span<const PickleValue> items) {
  frames_of_stack_.clear();
  uint64_t hash = 0;
  for (const PickleValue& item : items) {
    const FrameId frame(static_cast<int64_t>(*index_of(item, TokenKind::frame)));
    if (trace_.frames[frame.index()].file == own_frame_) continue;
    frames_of_stack_.push_back(frame);
    hash = (hash ^ static_cast<uint64_t>(frames_of_stack_.back().value)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29;
  }
  const auto [begin, end] = stack_ids_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    const Stack& stack = trace_.stacks[known->second.index()];
    const auto* frames = trace_.stack_frames.data() + stack.first_frame;
    if (std::equal(frames, frames + stack.frame_count, frames_of_stack_.begin(), frames_of_stack_.end())) return known->second.index();
  }
  if (trace_.stack_frames.size() + items.size() > UINT32_MAX)
    throw Error("the snapshot's stacks have more than 2^32 frames", reader_.describe_position());
  reader_.charge(sizeof(Stack) + 48 + frames_of_stack_.size() * sizeof(FrameId));
  const StackId id(static_cast<int64_t>(trace_.stacks.size()));
  trace_.stacks.push_back({static_cast<uint32_t>(trace_.stack_frames.size()), static_cast<uint32_t>(frames_of_stack_.size())});
  trace_.stack_frames.insert(trace_.stack_frames.end(), frames_of_stack_.begin(), frames_of_stack_.end());
  stack_ids_.emplace(hash, id);
  return id.index();
}

uint64_t SnapshotFolder::event(const Fields& fields) {
  event_keys_ |= fields.present;
  const std::string_view action = text(fields, kAction);
  const std::optional<EventKind> kind = event_kind(action);
  // "snapshot", "user_defined", "annotate" and actions of later releases do not change memory.
  if (!kind) return token(TokenKind::no_event, 0);
  AllocatorEvent event;
  event.kind = *kind;
  const std::optional<uint64_t> at = address(fields, event.kind == EventKind::oom ? kDeviceFree : kAddr);
  const std::optional<int64_t> bytes = size(fields, kSize);
  if (!at || !bytes || *at > UINT64_MAX - static_cast<uint64_t>(*bytes) ||
      (event.kind == EventKind::oom && *at > static_cast<uint64_t>(kMostSnapshotBytes))) {
    trace_.problems.add(Problem::bad_event, fmt::format("'{}' before {}", action, reader_.describe_position()));
    return token(TokenKind::no_event, 0);
  }
  event.address = *at;
  event.size_bytes = *bytes;
  event.stream = address(fields, kStream).value_or(0);
  event.time_us = integer(fields, kTime).value_or(0);
  event.stack = stack(fields);
  reader_.charge(sizeof event);
  trace_.events.push_back(event);
  return token(TokenKind::event, trace_.events.size() - 1);
}

uint64_t SnapshotFolder::block(const Fields& fields) {
  SnapshotBlock block;
  const std::string_view state = text(fields, kState);
  block.state = state == "active_allocated" ? SnapshotBlockState::active_allocated
                : state == "inactive"       ? SnapshotBlockState::inactive
                                            : SnapshotBlockState::active_pending_free;
  block.address = address(fields, kAddress).value_or(0);
  block.size_bytes = size(fields, kSize).value_or(0);
  block.stack = stack(fields);
  const std::optional<uint64_t> past = index_of(fields.get(kHistory), TokenKind::past);
  if (past && !fields.has(kFrames)) block.stack = pasts_[*past].stack;
  const int64_t otherwise = block.state == SnapshotBlockState::inactive ? 0 : block.size_bytes;
  block.requested_bytes = size(fields, kRequestedSize).value_or(past ? pasts_[*past].requested_bytes : otherwise);
  reader_.charge(sizeof block);
  blocks_.push_back(block);
  return token(TokenKind::block, blocks_.size() - 1);
}

std::optional<uint64_t> SnapshotFolder::segment(const Fields& fields) {
  FoldedSegment folded;
  SnapshotSegment& segment = folded.segment;
  const std::optional<uint64_t> at = address(fields, kAddress);
  const std::optional<int64_t> bytes = size(fields, kTotalSize);
  segment.address = at.value_or(0);
  segment.size_bytes = bytes.value_or(0);
  segment.stream = address(fields, kStream).value_or(0);
  segment.large = text(fields, kSegmentType) != "small";
  segment.expandable = fields.has(kExpandable) && reader_.boolean(fields.values[kExpandable]).value_or(false);
  const std::optional<uint64_t> pool = index_of(fields.get(kPoolId), TokenKind::pool);
  if (pool) segment.pool = pools_[*pool];
  folded.device = integer(fields, kDevice).value_or(0);
  const std::optional<uint64_t> run = index_of(fields.get(kBlocks), TokenKind::blocks);
  if (run) {
    folded.blocks = block_runs_[*run];
    block_runs_[*run] = {};  // a list of blocks belongs to one segment only
  }
  reader_.charge(sizeof folded);
  segments_.push_back(std::move(folded));
  return token(TokenKind::segment, segments_.size() - 1);
}

// ---- the whole snapshot
// ------------------------------------------------------------------------------------------------------------------

void SnapshotFolder::finish(PickleValue result, std::optional<int> device) {
  const std::optional<std::span<const PickleValue>> dict = reader_.items(result, PickleContainer::dict);
  if (!dict) {
    if (index_of(result, TokenKind::segments)) throw Error("the snapshot holds segments only, and no history", path_, kHowToRecord);
    throw Error("the pickle holds no memory snapshot: not a dict with 'segments' and 'device_traces'", path_, kHowToRecord);
  }
  const Fields top = fields_of(*dict);
  const std::optional<std::span<const PickleValue>> traces =
      top.has(kDeviceTraces) ? reader_.items(top.values[kDeviceTraces], PickleContainer::list) : std::nullopt;
  if (!traces) {
    throw Error(top.has(kSegments) ? "the snapshot holds segments only, and no history ('device_traces')"
                                   : "the pickle holds no memory snapshot: no 'segments' and no 'device_traces'",
                path_, kHowToRecord);
  }
  const int64_t chosen = choose_device(*traces, device);
  const std::optional<uint64_t> run_index = index_of((*traces)[static_cast<size_t>(chosen)], TokenKind::events);
  const Run run = run_index ? event_runs_[*run_index] : Run();
  trace_.events.erase(trace_.events.begin() + static_cast<std::ptrdiff_t>(run.first + run.count), trace_.events.end());
  trace_.events.erase(trace_.events.begin(), trace_.events.begin() + static_cast<std::ptrdiff_t>(run.first));
  take_segments(top, chosen);
  for (const auto& [annotation, of_device] : annotations_) {
    if (of_device == chosen) trace_.annotations.push_back(annotation);
  }
  trace_.header.source = "snapshot";
  trace_.process.device = chosen;
  trace_.process.torch = release(top);
  if (top.has(kSettings)) trace_.process.alloc_conf = snapshot_settings(reader_, trace_.strings, top.values[kSettings]);
  keep_used_texts();
}

// Older snapshots do not name their PyTorch release, and some allocator rules depend on it. It is found from the keys that exist.
std::string SnapshotFolder::release(const Fields& top) const {
  if (top.has(kTorch)) return std::string(text(top, kTorch));
  if (top.has(kHostTraces)) return "2.14 or newer";
  if ((event_keys_ >> kEventPoolId & 1) != 0) return "2.12 to 2.13";
  if ((event_keys_ >> kUserMetadata & 1) != 0) return "2.10 to 2.11";
  if ((event_keys_ >> kCompileContext & 1) != 0) return "2.8 to 2.9";
  return "2.7 or older";
}

// Removes texts that are not needed any more: keys, states and other values of events.
void SnapshotFolder::keep_used_texts() {
  StringTable used;
  for (Frame& frame : trace_.frames) {
    frame.file = used.intern(trace_.strings.text(frame.file));
    frame.function = used.intern(trace_.strings.text(frame.function));
  }
  for (Annotation& annotation : trace_.annotations) annotation.name = used.intern(trace_.strings.text(annotation.name));
  trace_.strings = std::move(used);
}

int64_t SnapshotFolder::choose_device(std::span<const PickleValue> traces, std::optional<int> wanted) const {
  std::string counts;
  int64_t only = -1, with_events = 0;
  for (size_t i = 0; i < traces.size(); ++i) {
    const std::optional<uint64_t> run = index_of(traces[i], TokenKind::events);
    const uint64_t count = run ? event_runs_[*run].count : 0;
    if (count == 0) continue;
    ++with_events;
    only = static_cast<int64_t>(i);
    if (with_events <= 64) counts += fmt::format("{}{}: {} events", counts.empty() ? "" : ", ", i, count);
  }
  if (with_events == 0) throw Error("the snapshot's history is empty: nothing was recorded", path_, kHowToRecord);
  if (wanted) {
    const std::optional<uint64_t> run = *wanted >= 0 && static_cast<size_t>(*wanted) < traces.size()
                                            ? index_of(traces[static_cast<size_t>(*wanted)], TokenKind::events)
                                            : std::nullopt;
    if (!run || event_runs_[*run].count == 0)
      throw Error(fmt::format("the snapshot has no history of device {}", *wanted), path_,
                  fmt::format("devices with a history: {}", counts));
    return *wanted;
  }
  if (with_events > 1)
    throw Error("the snapshot holds the history of several devices", path_, fmt::format("choose one with --device N ({})", counts));
  return only;
}

void SnapshotFolder::take_segments(const Fields& top, int64_t device) {
  const std::optional<uint64_t> run_index = index_of(top.get(kSegments), TokenKind::segments);
  const Run run = run_index ? segment_runs_[*run_index] : Run();
  for (uint64_t i = run.first; i < run.first + run.count; ++i) {
    FoldedSegment& folded = segments_[i];
    if (folded.device != device) continue;
    if (!add_blocks(&folded)) {
      trace_.problems.add(Problem::bad_segment, fmt::format("segment {} of {}, address {:#x}, {} bytes", i - run.first, run.count,
                                                            folded.segment.address, folded.segment.size_bytes));
      continue;
    }
    trace_.end_segments.push_back(std::move(folded.segment));
  }
  std::vector<SnapshotSegment>& list = trace_.end_segments;
  std::sort(list.begin(), list.end(), [](const SnapshotSegment& a, const SnapshotSegment& b) { return a.address < b.address; });
  // Of overlapping segments, only the first is kept.
  size_t kept = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (kept > 0 && list[kept - 1].address + static_cast<uint64_t>(list[kept - 1].size_bytes) > list[i].address) {
      trace_.problems.add(Problem::bad_segment, fmt::format("two segments at {:#x}", list[i].address));
      continue;
    }
    if (kept != i) list[kept] = std::move(list[i]);
    ++kept;
  }
  list.resize(kept);
}

// Blocks cover their segment in order, without gaps. Older releases leave out their addresses.
bool SnapshotFolder::add_blocks(FoldedSegment* folded) {
  SnapshotSegment& segment = folded->segment;
  if (segment.size_bytes <= 0 || segment.address > UINT64_MAX - static_cast<uint64_t>(segment.size_bytes)) return false;
  segment.blocks.reserve(folded->blocks.count);
  int64_t used = 0;
  for (uint64_t i = folded->blocks.first; i < folded->blocks.first + folded->blocks.count; ++i) {
    SnapshotBlock block = blocks_[i];
    const uint64_t expected = segment.address + static_cast<uint64_t>(used);
    if (block.address == 0) block.address = expected;
    if (block.size_bytes <= 0 || block.address != expected || block.size_bytes > segment.size_bytes - used) return false;
    used += block.size_bytes;
    segment.blocks.push_back(block);
  }
  return used == segment.size_bytes;
}

}  // namespace

bool looks_like_snapshot(const std::string& path) { return looks_like_pickle(path); }

Trace read_snapshot(const std::string& path, std::optional<int> device) {
  Trace trace;
  trace.path = path;
  PickleReader reader(path, &trace.strings);
  SnapshotFolder folder(path, &reader, &trace);
  folder.finish(reader.read(&folder), device);
  return trace;
}

}  // namespace gpucast
