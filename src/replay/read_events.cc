// The event format (docs/reference/event-format.md): one event a line, in letters and numbers.

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "gpucast/error.h"
#include "gpucast/history.h"
#include "src/base/gzip_lines.h"
#include "src/base/to_number.h"

namespace gpucast {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 44;  // 16 TiB, the same limit as in captures
constexpr size_t kMaxStreams = 4096;

// Cuts words off the front of a line.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}
  std::string_view next_word() {
    const size_t begin = rest_.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return rest_ = {};
    rest_.remove_prefix(begin);
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t\r"));
    rest_.remove_prefix(word.size());
    return word;
  }

 private:
  std::string_view rest_;
};

class EventReader {
 public:
  explicit EventReader(const std::string& path) : lines_(path) {
    history_.path = path;
    history_.source = "events";
    history_.streams = {0};  // the default stream always exists
    history_.stream_ids = {0};
    streams_[0] = 0;
  }

  History read() {
    std::string_view line;
    while (lines_.next(&line)) {
      const size_t first = line.find_first_not_of(" \t\r");
      if (first == std::string_view::npos) continue;
      if (line[first] == '#') {
        read_comment(line.substr(first + 1));
      } else {
        read_event(line);
      }
    }
    if (lines_.end() != GzipLines::End::complete || lines_.has_partial_line()) {
      throw Error("the file is cut short or damaged", where(), "make it again, or repair the end of the file");
    }
    // A pool has a state for every stream.
    if (pool_begins_ * history_.streams.size() > kMaxPoolStreams) fail("too many private pools and streams together");
    return std::move(history_);
  }

 private:
  std::string where() const { return fmt::format("{}:{}", history_.path, lines_.line_number()); }
  [[noreturn]] void fail(const std::string& what) const { throw Error(what, where(), "the format: docs/reference/event-format.md"); }

  // Facts about the recording: "# torch 2.6.0", "# alloc_conf max_split_size_mb:64", and CUDA's and PyTorch's names of streams 0, 1, ...:
  // "# stream_handles 0 9437184 9437696", "# stream_ids 0 3 35".
  void read_comment(std::string_view text) {
    Words words(text);
    const std::string_view key = words.next_word();
    if (key == "torch") history_.torch = words.next_word();
    if (key == "alloc_conf") history_.alloc_conf = words.next_word();
    if (key == "stream_handles") named_handles_ = numbers(&words);
    if (key == "stream_ids") named_ids_ = numbers(&words);
    for (size_t i = 0; i < history_.streams.size(); ++i) name_stream(i);
  }

  std::vector<uint64_t> numbers(Words* words) const {
    std::vector<uint64_t> out;
    for (std::string_view word = words->next_word(); !word.empty(); word = words->next_word()) {
      const auto number = to_number<uint64_t>(word);
      if (!number) fail(fmt::format("'{}' is no number", word));
      out.push_back(*number);
    }
    return out;
  }

  void name_stream(size_t index) {
    const uint64_t name = history_.streams[index];
    const auto lookup = [&](const std::vector<uint64_t>& named, std::vector<uint64_t>* to) {
      if (named.empty()) return;
      to->resize(history_.streams.size());
      (*to)[index] = name < named.size() ? named[name] : name;
    };
    lookup(named_handles_, &history_.stream_handles);
    lookup(named_ids_, &history_.stream_ids);
    if (!named_ids_.empty()) return;
    // Without names, stream n is the n-th stream that PyTorch gives out from its pool.
    history_.stream_ids.resize(history_.streams.size());
    history_.stream_ids[index] = name == 0 ? 0 : (name - 1) << 5 | 3;
  }

  StreamIndex stream(std::string_view word) {
    const auto handle = to_number<uint64_t>(word);
    if (!handle) fail(word.empty() ? "the stream is missing" : fmt::format("stream '{}' is no number", word));
    const auto [it, fresh] = streams_.try_emplace(*handle, static_cast<StreamIndex>(history_.streams.size()));
    if (fresh) {
      if (history_.streams.size() == kMaxStreams) fail(fmt::format("more than {} streams", kMaxStreams));
      history_.streams.push_back(*handle);
      name_stream(history_.streams.size() - 1);
    }
    return it->second;
  }
  StreamIndex stream_or_all(std::string_view word) { return word.empty() ? AllocOp::kEveryStream : stream(word); }

  uint64_t id_name(std::string_view word) const {
    const auto name = to_number<uint64_t>(word);
    if (!name) fail(word.empty() ? "the id is missing" : fmt::format("id '{}' is no number", word));
    return *name;
  }
  uint32_t known_id(std::string_view word) const {
    const auto it = ids_.find(id_name(word));
    if (it == ids_.end()) fail(fmt::format("nothing was allocated with id {}", word));
    return it->second;
  }

  // An id names one block at a time: it may be reused once the block is freed.
  uint32_t new_id(std::string_view word) {
    const uint64_t name = id_name(word);
    const auto [it, fresh] = ids_.try_emplace(name, history_.id_count);
    if (fresh) {
      if (history_.id_count == UINT32_MAX - 1) fail("too many ids");
      ++history_.id_count;
      history_.id_names.push_back(name);
      in_use_.push_back(true);
    } else {
      if (in_use_[it->second]) fail(fmt::format("id {} is allocated already", word));
      in_use_[it->second] = true;
    }
    return it->second;
  }

  void read_event(std::string_view line) {
    Words words(line);
    const std::string_view kind = words.next_word();
    AllocOp op;
    if (kind == "a") {
      op.kind = OpKind::alloc;
      op.id = new_id(words.next_word());
      const std::string_view size = words.next_word();
      const auto size_bytes = to_number<int64_t>(size);
      if (!size_bytes) fail(size.empty() ? "the size is missing" : fmt::format("size '{}' is no number", size));
      if (*size_bytes <= 0 || *size_bytes > kMaxBytes) fail(fmt::format("size {} is not between 1 B and 16 TiB", size));
      op.size_bytes = *size_bytes;
      op.stream = stream(words.next_word());
    } else if (kind == "f") {
      op.kind = OpKind::free;
      op.id = known_id(words.next_word());
      if (!in_use_[op.id]) fail("freed twice");
      in_use_[op.id] = false;
    } else if (kind == "r") {
      op.kind = OpKind::record_stream;
      op.id = known_id(words.next_word());
      op.stream = stream(words.next_word());
    } else if (kind == "e") {
      op.kind = OpKind::empty_cache;
    } else if (kind == "p") {
      op.kind = OpKind::set_fraction;
      const std::string_view word = words.next_word();
      const auto fraction = to_number<double>(word);
      if (!fraction || !(*fraction >= 0 && *fraction <= 1)) fail(fmt::format("fraction '{}' is not between 0 and 1", word));
      op.size_bytes = std::bit_cast<int64_t>(*fraction);
    } else if (kind == "s" || kind == "w") {
      op.kind = OpKind::finish_stream;
      op.stream = stream_or_all(words.next_word());
    } else if (kind == "h") {
      op.kind = OpKind::hold_stream;
      op.stream = stream(words.next_word());
    } else if (kind == "k") {
      op.stream = stream_or_all(words.next_word());
    } else if (kind == "pb" || kind == "pe" || kind == "pr") {
      op.kind = kind == "pb" ? OpKind::begin_pool : kind == "pe" ? OpKind::end_pool : OpKind::release_pool;
      const std::string_view word = words.next_word();
      const auto pool = to_number<uint32_t>(word);
      if (!pool || *pool == 0 || *pool > 1000000) fail(fmt::format("pool '{}' is not between 1 and 1000000", word));
      op.id = *pool;
      op.stream = AllocOp::kEveryStream;
      if (kind == "pb") {
        op.stream = stream_or_all(words.next_word());
        ++pool_begins_;
      }
    } else {
      fail(fmt::format("unknown event '{}'", kind));
    }
    if (const std::string_view extra = words.next_word(); !extra.empty()) fail(fmt::format("'{}' is too much", extra));
    history_.ops.push_back(op);
  }

  GzipLines lines_;
  size_t pool_begins_ = 0;
  History history_;
  std::unordered_map<uint64_t, StreamIndex> streams_;
  std::unordered_map<uint64_t, uint32_t> ids_;
  std::vector<bool> in_use_;
  std::vector<uint64_t> named_handles_, named_ids_;
};

}  // namespace

History read_events(const std::string& path) { return EventReader(path).read(); }

bool looks_like_events(const std::string& path) {
  GzipLines lines(path);
  std::string_view line;
  for (int i = 0; i < 100 && lines.next(&line); ++i) {
    Words words(line);
    const std::string_view kind = words.next_word();
    if (kind.empty() || kind.front() == '#') continue;
    constexpr std::string_view kKinds[] = {"a", "f", "r", "e", "p", "s", "w", "h", "k", "pb", "pe", "pr"};
    return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
  }
  return false;
}

}  // namespace gpucast
