#include "src/report/snapshot_export.h"

#include <fmt/core.h>

#include <bit>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gpucast/error.h"
#include "src/base/alloc_conf.h"
#include "src/base/with_spaces.h"
#include "src/predict/segments_at_end.h"

namespace gpucast {
namespace {

constexpr size_t kBatch = 1000;  // items of one APPENDS, as in Python's pickler; memory_viz does not read many more
constexpr size_t kBufferBytes = 1 << 20;
constexpr int64_t kMostDevices = 1024;

// ---- opcodes ----------------------------------------------------------------------------------------------------------------

class Pickler {
 public:
  explicit Pickler(std::ostream& out) : out_(out) { bytes_ = "\x80\x04"; }

  void end() {
    op('.');
    flush();
    out_.flush();
    if (!out_) throw Error("the snapshot cannot be written", "", "is the disk full?");
  }

  void op(char code) { bytes_ += code; }
  void integer(int64_t value) {
    if (value >= 0 && value <= UINT8_MAX) return little('K', static_cast<uint64_t>(value), 1);
    if (value >= 0 && value <= UINT16_MAX) return little('M', static_cast<uint64_t>(value), 2);
    if (value >= INT32_MIN && value <= INT32_MAX) return little('J', static_cast<uint64_t>(value), 4);
    whole(static_cast<uint64_t>(value), value < 0);
  }
  void address(uint64_t value) { value <= INT32_MAX ? integer(static_cast<int64_t>(value)) : whole(value, false); }
  void real(double value) {
    auto bits = std::bit_cast<uint64_t>(value);
    op('G');
    for (int i = 7; i >= 0; --i) bytes_ += static_cast<char>(bits >> (8 * i) & 0xff);
  }
  void boolean(bool value) { op(value ? '\x88' : '\x89'); }

  // Writes every text once; later uses refer to the memo.
  void text(std::string_view value) {
    const auto known = texts_.find(std::string(value));
    if (known != texts_.end()) return get(known->second);
    const std::string clean = utf8(value);
    if (clean.size() <= UINT8_MAX) {
      little('\x8c', clean.size(), 1);
    } else {
      little('X', clean.size(), 4);
    }
    bytes_ += clean;
    texts_.emplace(value, memoize());
    flush_if_full();
  }

  uint32_t memoize() {
    op('\x94');
    return memo_++;
  }
  void get(uint32_t memo) { memo <= UINT8_MAX ? little('h', memo, 1) : little('j', memo, 4); }

  // A dict: begin_dict(), then any number of key() and value, then end_dict().
  void begin_dict() { bytes_ += "}("; }
  void key(std::string_view name) { text(name); }
  void end_dict() {
    op('u');
    flush_if_full();
  }

  // A list of `count` items, each written by item(i).
  template <class Item>
  void list(size_t count, Item item) {
    op(']');
    fill(count, item);
  }
  template <class Item>
  void fill(size_t count, Item item) {
    for (size_t i = 0; i < count; ++i) {
      if (i % kBatch == 0) op('(');
      item(i);
      if ((i + 1) % kBatch == 0 || i + 1 == count) op('e');
    }
  }

 private:
  void little(char code, uint64_t value, int bytes) {
    bytes_ += code;
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
  }
  // LONG1: the fewest bytes that hold the value and its sign.
  void whole(uint64_t value, bool negative) {
    int bytes = 8;
    if (!negative && value >> 63 != 0) bytes = 9;
    while (bytes > 1 && bytes < 9 && !negative && value >> (8 * bytes - 9) == 0) --bytes;
    op('\x8a');
    op(static_cast<char>(bytes));
    for (int i = 0; i < bytes; ++i) bytes_ += i < 8 ? static_cast<char>(value >> (8 * i) & 0xff) : '\0';
  }

  // A path may contain bytes that are not UTF-8. An unpickler would stop there, so they are replaced.
  static std::string utf8(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const auto lead = static_cast<unsigned char>(text[i]);
      const size_t length = lead < 0x80                   ? 1
                            : lead >= 0xc2 && lead < 0xe0 ? 2
                            : lead >= 0xe0 && lead < 0xf0 ? 3
                            : lead >= 0xf0 && lead < 0xf5 ? 4
                                                          : 0;
      bool good = length > 0 && i + length <= text.size();
      for (size_t j = 1; good && j < length; ++j) good = (static_cast<unsigned char>(text[i + j]) & 0xc0) == 0x80;
      // Overlong forms, surrogates, and values above Unicode's range.
      if (good && length > 2) {
        const auto second = static_cast<unsigned char>(text[i + 1]);
        good = !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second >= 0xa0) && !(lead == 0xf0 && second < 0x90) &&
               !(lead == 0xf4 && second >= 0x90);
      }
      out += good ? std::string(text.substr(i, length)) : "?";
      i += good ? length : 1;
    }
    return out;
  }

  void flush() {
    out_.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    bytes_.clear();
  }
  void flush_if_full() {
    if (bytes_.size() >= kBufferBytes) flush();
  }

  std::ostream& out_;
  std::string bytes_;
  uint32_t memo_ = 0;
  std::unordered_map<std::string, uint32_t> texts_;
};

// ---- the snapshot ---------------------------------------------------------------------------------------------------------------

const char* state_name(SnapshotBlockState state) {
  switch (state) {
    case SnapshotBlockState::active_allocated:
      return "active_allocated";
    case SnapshotBlockState::active_pending_free:
      return "active_pending_free";  // the word that memory_viz expects
    case SnapshotBlockState::inactive:
      return "inactive";
  }
  return "";
}

class SnapshotWriter {
 public:
  SnapshotWriter(const Facts& facts, std::ostream& out)
      : facts_(facts),
        trace_(facts.trace),
        lifetimes_(facts.lifetimes),
        attribution_(facts.attribution),
        out_(out),
        explained_(trace_.header.source != "snapshot"),
        device_(trace_.process.device >= 0 && trace_.process.device < kMostDevices ? trace_.process.device : 0),
        block_of_event_(trace_.events.size(), -1) {
    for (size_t i = 0; i < lifetimes_.blocks.size(); ++i) {
      if (!lifetimes_.blocks[i].before_start) block_of_event_[lifetimes_.blocks[i].alloc_event] = static_cast<int64_t>(i);
    }
  }

  void write() {
    out_.begin_dict();
    out_.key("segments");
    write_segments();
    out_.key("device_traces");
    out_.list(static_cast<size_t>(device_) + 1, [&](size_t device) {
      out_.list(device == static_cast<size_t>(device_) ? trace_.events.size() : 0, [&](size_t i) { write_event(i); });
    });
    out_.key("allocator_settings");
    write_settings();
    out_.key("external_annotations");
    write_annotations();
    out_.key("gpucast_torch");  // the PyTorch release; viewers ignore it
    out_.text(trace_.process.torch);
    out_.end_dict();
    out_.end();
  }

 private:
  // "activations: forward, step 2, in fc1 (Linear), by aten::addmm", "parameters: model_to_device, in fc1 (Linear), fc1.weight"
  std::string explanation(size_t block) const {
    const BlockAttribution& a = attribution_.blocks[block];
    std::string text = fmt::format("{}: {}", with_spaces(category_name(a.category)), phase_name(a.phase));
    if (a.step > 0) text += fmt::format(", step {}", a.step);
    const std::string module = module_label(trace_, a.module);
    if (!module.empty()) text += ", in " + module;
    if (a.tensor.valid()) {
      const TensorMark& tensor = trace_.tensors[a.tensor.index()];
      text += fmt::format(", {}{}", tensor.kind == TensorKind::input ? "argument " : "", trace_.strings.text(tensor.name));
    } else if (a.op.valid()) {
      text += ", by " + attribution_.operators[a.op.index()];
    }
    return text;
  }

  void write_frame(std::string_view name, std::string_view file, int64_t line) {
    out_.begin_dict();
    out_.key("name");
    out_.text(name);
    out_.key("filename");
    out_.text(file);
    out_.key("line");
    out_.integer(line);
    out_.end_dict();
  }

  // A stack, with a first frame that explains the block ("": without one). Equal stacks are written once.
  void write_frames(StackId stack, const std::string& explained) {
    const bool known_stack = stack.valid() && stack.index() < trace_.stacks.size();
    const auto [list, is_new] = lists_.try_emplace({known_stack ? stack.value : -1, explained}, 0);
    if (!is_new) return out_.get(list->second);
    out_.op(']');
    list->second = out_.memoize();
    const Stack frames = known_stack ? trace_.stacks[stack.index()] : Stack();
    const size_t in_front = explained.empty() ? 0 : 1;
    out_.fill(frames.frame_count + in_front, [&](size_t i) {
      if (i < in_front) return write_frame(explained, kOwnFrame, 0);
      const FrameId id = trace_.stack_frames[frames.first_frame + i - in_front];
      const auto [known, is_new_frame] = frames_.try_emplace(id.value, 0);
      if (!is_new_frame) return out_.get(known->second);
      const Frame& f = trace_.frames[id.index()];
      write_frame(trace_.strings.text(f.function), trace_.strings.text(f.file), f.line);
      known->second = out_.memoize();
    });
  }

  void write_event(size_t i) {
    const AllocatorEvent& e = trace_.events[i];
    const bool explain = explained_ && e.kind == EventKind::alloc && block_of_event_[i] >= 0;
    const std::string explained = explain ? explanation(static_cast<size_t>(block_of_event_[i])) : "";
    out_.begin_dict();
    out_.key("action");
    out_.text(event_kind_name(e.kind));
    out_.key(e.kind == EventKind::oom ? "device_free" : "addr");
    out_.address(e.address);
    out_.key("size");
    out_.integer(e.size_bytes);
    out_.key("stream");
    out_.address(e.stream);
    out_.key("time_us");
    out_.integer(e.time_us);
    if (explained_) {
      // memory_viz fails if there are categories, but not "unknown".
      out_.key("category");
      out_.text(explain ? category(static_cast<size_t>(block_of_event_[i])) : "unknown");
    }
    if (explain) {
      out_.key("user_metadata");
      out_.text(explained);
    }
    out_.key("frames");
    write_frames(e.stack, explained);
    out_.end_dict();
  }

  const char* category(size_t block) const {
    const Category category = attribution_.blocks[block].category;
    return category == Category::unattributed ? "unknown" : category_name(category);
  }

  void write_segments() {
    std::unordered_map<uint64_t, int64_t> alive;  // blocks at the end, by address
    for (size_t i = 0; i < lifetimes_.blocks.size(); ++i) {
      if (lifetimes_.blocks[i].free_event == Block::kNever) alive[lifetimes_.blocks[i].address] = static_cast<int64_t>(i);
    }
    std::unordered_map<uint64_t, StackId> made;  // by address: the stack that made each segment
    for (const AllocatorEvent& event : trace_.events) {
      if (event.kind == EventKind::segment_alloc || event.kind == EventKind::segment_map) made[event.address] = event.stack;
    }
    const std::vector<SnapshotSegment> list = segments_at_end(facts_);
    out_.list(list.size(), [&](size_t i) {
      const auto stack = made.find(list[i].address);
      write_segment(list[i], stack == made.end() ? StackId() : stack->second, alive);
    });
  }

  void write_segment(const SnapshotSegment& s, StackId stack, const std::unordered_map<uint64_t, int64_t>& alive) {
    int64_t allocated = 0, active = 0, requested = 0;
    for (const SnapshotBlock& block : s.blocks) {
      if (block.state == SnapshotBlockState::inactive) continue;
      active += block.size_bytes;
      requested += block.requested_bytes;
      if (block.state == SnapshotBlockState::active_allocated) allocated += block.size_bytes;
    }
    const auto field = [&](const char* name, int64_t value) {
      out_.key(name);
      out_.integer(value);
    };
    out_.begin_dict();
    field("device", device_);
    out_.key("address");
    out_.address(s.address);
    field("total_size", s.size_bytes);
    field("allocated_size", allocated);
    field("active_size", active);
    field("requested_size", requested);
    out_.key("stream");
    out_.address(s.stream);
    out_.key("segment_type");
    out_.text(s.large ? "large" : "small");
    out_.key("segment_pool_id");
    out_.integer(s.pool.first);
    out_.integer(s.pool.second);
    out_.op('\x86');  // a tuple of the two
    out_.key("is_expandable");
    out_.boolean(s.expandable);
    out_.key("frames");
    write_frames(stack, "");
    out_.key("blocks");
    out_.list(s.blocks.size(), [&](size_t i) {
      const SnapshotBlock& block = s.blocks[i];
      const auto known = alive.find(block.address);
      const bool explain = explained_ && block.state == SnapshotBlockState::active_allocated && known != alive.end();
      out_.begin_dict();
      out_.key("address");
      out_.address(block.address);
      field("size", block.size_bytes);
      field("requested_size", block.requested_bytes);
      out_.key("state");
      out_.text(state_name(block.state));
      out_.key("frames");
      write_frames(block.stack, explain ? explanation(static_cast<size_t>(known->second)) : "");
      out_.end_dict();
    });
    out_.end_dict();
  }

  void write_settings() {
    const AllocConf conf = parse_alloc_conf(trace_.process.alloc_conf, trace_.process.torch);
    out_.begin_dict();
    out_.key("PYTORCH_CUDA_ALLOC_CONF");
    out_.text(trace_.process.alloc_conf);
    out_.key("max_split_size");
    out_.integer(conf.max_split_size_bytes == AllocConf().max_split_size_bytes ? -1 : conf.max_split_size_bytes);
    out_.key("garbage_collection_threshold");
    out_.real(conf.garbage_collection_threshold);
    out_.key("expandable_segments");
    out_.boolean(conf.expandable_segments);
    out_.key("roundup_power2_divisions");
    out_.begin_dict();
    for (size_t i = 0; i < conf.roundup_power2_divisions.size(); ++i) {
      out_.key(std::to_string(int64_t{1} << i));
      out_.integer(conf.roundup_power2_divisions[i]);
    }
    out_.end_dict();
    out_.end_dict();
  }

  void write_annotations() {
    out_.list(trace_.annotations.size(), [&](size_t i) {
      const Annotation& annotation = trace_.annotations[i];
      out_.begin_dict();
      out_.key("stage");
      out_.text(annotation.begins ? "START" : "END");
      out_.key("name");
      out_.text(trace_.strings.text(annotation.name));
      out_.key("device");
      out_.integer(device_);
      out_.key("time_us");
      out_.integer(annotation.time_us);
      out_.end_dict();
    });
  }

  const Facts& facts_;
  const Trace& trace_;
  const Lifetimes& lifetimes_;
  const Attribution& attribution_;
  Pickler out_;
  bool explained_;  // the trace has phases, modules and categories
  int64_t device_;
  std::vector<int64_t> block_of_event_;                        // by alloc event; -1: none
  std::map<std::pair<int32_t, std::string>, uint32_t> lists_;  // memo of lists of frames
  std::unordered_map<int32_t, uint32_t> frames_;               // memo of frames
};

}  // namespace

void write_snapshot(const Analysis& analysis, std::ostream& out) { SnapshotWriter(*analysis.facts, out).write(); }

}  // namespace gpucast
