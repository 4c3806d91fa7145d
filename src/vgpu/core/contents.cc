// The contents that device memory reads as: zeros, except for small copies from the host that no kernel can have overwritten yet.
#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/vgpu/core/core.h"
#include "src/vgpu/core/launch_values.h"
#include "src/vgpu/core/log.h"
#include "src/vgpu/core/process.h"
#include "src/vgpu/core/regions.h"
#include "src/vgpu/core/stream_capture.h"
#include "src/vgpu/core/streams.h"

namespace gpucast::vgpu {
namespace {

// A copy larger than the first is kept where it looks like indices rather than a batch of inputs; one larger than the second never.
constexpr size_t kFewValueBytes = 256 << 10, kMostValueBytes = 4 << 20;
constexpr size_t kContentsLimitBytes = 64 << 20;  // in all; otherwise a program without kernels could fill the host's memory

// Bytes that a copy wrote, or that a collective fetches when they are first read.
struct Buffer {
  std::mutex mutex;
  std::vector<unsigned char> bytes;
  Later later;  // empty: the bytes are already here
  bool known = true;

  // Waits for bytes that are not here yet. True: the bytes are known.
  bool get() {
    const std::lock_guard lock(mutex);
    if (later) {
      known = later(bytes.data());
      later = nullptr;
    }
    return known;
  }
};

// A part of a buffer. Pieces are cut and copied without reading the bytes.
struct Piece {
  std::shared_ptr<Buffer> buffer;
  size_t offset = 0, size = 0;

  Piece part(size_t from, size_t until) const { return {buffer, offset + from, until - from}; }
};

struct Contents {
  std::mutex mutex;
  std::map<uint64_t, Piece> pieces;  // by address, without overlaps
  size_t size_bytes = 0;
  std::atomic<bool> any{false};

  void clear() {
    pieces.clear();
    size_bytes = 0;
    any.store(false, std::memory_order_relaxed);
  }

  // The pieces in a range, cut to the range.
  std::vector<std::pair<uint64_t, Piece>> find(uint64_t address, size_t size) const {
    std::vector<std::pair<uint64_t, Piece>> found;
    const uint64_t end = address + size;
    auto piece = pieces.upper_bound(address);
    if (piece != pieces.begin()) --piece;
    for (; piece != pieces.end() && piece->first < end; ++piece) {
      const uint64_t from = std::max(piece->first, address), until = std::min<uint64_t>(piece->first + piece->second.size, end);
      if (from < until) found.emplace_back(from, piece->second.part(from - piece->first, until - piece->first));
    }
    return found;
  }

  void erase(uint64_t address, size_t size) {
    const uint64_t end = address + size;
    for (const auto& [from, cut] : find(address, size)) {
      const auto old = std::prev(pieces.upper_bound(from));
      const uint64_t old_from = old->first, old_end = old_from + old->second.size;
      const Piece whole = old->second;
      pieces.erase(old);
      size_bytes -= cut.size;
      if (old_from < address) pieces.emplace(old_from, whole.part(0, address - old_from));
      if (old_end > end) pieces.emplace(end, whole.part(end - old_from, whole.size));
    }
    if (pieces.empty()) any.store(false, std::memory_order_relaxed);
  }

  void write(uint64_t address, Piece piece) {
    erase(address, piece.size);
    if (size_bytes + piece.size > kContentsLimitBytes) clear();
    size_bytes += piece.size;
    pieces.emplace(address, std::move(piece));
    any.store(true, std::memory_order_relaxed);
  }
};

Piece piece_of(const void* from, size_t size) {
  auto buffer = std::make_shared<Buffer>();
  const auto* bytes = static_cast<const unsigned char*>(from);
  buffer->bytes.assign(bytes, bytes + size);
  return {std::move(buffer), 0, size};
}

// Writes the known bytes to `to` and returns their number. Call without the lock: it may wait.
size_t copy_known(uint64_t address, const std::vector<std::pair<uint64_t, Piece>>& pieces, void* to) {
  size_t known = 0;
  for (const auto& [from, piece] : pieces) {
    if (!piece.buffer->get()) continue;
    std::memcpy(static_cast<char*>(to) + (from - address), piece.buffer->bytes.data() + piece.offset, piece.size);
    known += piece.size;
  }
  return known;
}

Contents& contents() {
  static Contents* const kContents = new Contents;  // never destroyed: used until the very end
  return *kContents;
}

using Lock = std::lock_guard<std::mutex>;

// At most a few regions of 1 TiB. Regions are only added, never removed.
struct Region {
  std::atomic<uint64_t> start{0}, end{0};
};
std::array<Region, 256> g_regions;
std::atomic<size_t> g_region_count{0};

void log_copy(uint64_t to, uint64_t from, size_t size, int kind, uint64_t stream, bool* captured) {
  count_operation();
  Range range;
  const bool pageable = (kind == 1 || kind == 2) && !find_host_range(reinterpret_cast<const void*>(kind == 1 ? from : to), &range);
  if (has_clock_now()) {
    ClockWork work = clock_copy(kind, size, pageable);
    work.activity.pinned = !pageable && kind != 3;
    *captured = clock_work(work, stream, kGraphNodeMemcpy, "cudaMemcpyAsync");
    return;
  }
  char line[160];
  std::snprintf(line, sizeof line, "[\"memcpy\",%d,%" PRIu64 ",%" PRIu64 ",%zu,%" PRIu64 "]", kind, to, from, size, stream);
  *captured = capture_node(stream, kGraphNodeMemcpy, line);
  if (!*captured) log_timed(line, pageable ? ",1" : "");
}

// Whole numbers of 8 or 4 bytes that are small: some are looked at. Real numbers and pixels, read so, are large.
bool look_like_indices(const void* from, size_t size_bytes) {
  constexpr size_t kLookedAt = 64;
  constexpr int64_t kLong = int64_t{1} << 32, kShort = int64_t{1} << 24;
  bool are_long = true, are_short = true;
  for (size_t n = 0; n < kLookedAt; ++n) {
    int64_t whole = 0;
    std::array<int32_t, 2> halves;
    const char* const word = static_cast<const char*>(from) + (size_bytes / sizeof whole - 1) * n / kLookedAt * sizeof whole;
    std::memcpy(&whole, word, sizeof whole);
    std::memcpy(halves.data(), word, sizeof halves);
    are_long = are_long && -kLong < whole && whole < kLong;
    for (const int64_t half : halves) are_short = are_short && -kShort < half && half < kShort;
  }
  return are_long || are_short;
}

void keep_values(uint64_t to, uint64_t from, size_t size_bytes, bool from_device) {
  const void* const on_host = reinterpret_cast<const void*>(from);
  if (!from_device && (size_bytes <= kFewValueBytes || (size_bytes <= kMostValueBytes && look_like_indices(on_host, size_bytes)))) {
    remember_values(to, {static_cast<const char*>(on_host), size_bytes});
    return;
  }
  const auto known = from_device ? values_at({{from}}) : std::vector<LaunchValuesRef>();
  if (!known.empty() && known[0]->address == from && known[0]->bytes.size() >= size_bytes) {
    remember_values(to, std::string_view(known[0]->bytes).substr(0, size_bytes));
  } else {
    forget_values(to, size_bytes);
  }
}

}  // namespace

void add_device_region(uint64_t start, uint64_t size_bytes) {
  const size_t count = g_region_count.load();
  if (count == g_regions.size()) return;
  g_regions[count].start = start;
  g_regions[count].end = start + size_bytes;
  g_region_count.store(count + 1);
}

bool in_device_region(uint64_t address) {
  const size_t count = g_region_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i)
    if (address - g_regions[i].start < g_regions[i].end - g_regions[i].start) return true;
  return false;
}

void forget_contents(uint64_t address, size_t size_bytes) {
  Contents& c = contents();
  if (!c.any.load(std::memory_order_relaxed)) return;
  const Lock lock(c.mutex);
  c.erase(address, size_bytes);
}

void copy(void* to, const void* from, size_t size_bytes, int, uint64_t stream) {
  if (size_bytes == 0) return;
  context_activate();
  // The addresses decide the direction. With a wrong `kind` we would touch memory without access.
  const uint64_t to_address = reinterpret_cast<uint64_t>(to), from_address = reinterpret_cast<uint64_t>(from);
  const bool to_device = in_device_region(to_address), from_device = in_device_region(from_address);
  bool captured = false;
  const int on_device = is_of_another_process(to_address) || is_of_another_process(from_address) ? kCopyBetweenCards : 3;
  log_copy(to_address, from_address, size_bytes, to_device ? (from_device ? on_device : 1) : (from_device ? 2 : 0), stream, &captured);
  if (captured) return;
  if (to_device && !from_device) note_upload(size_bytes);
  if (to_device) keep_values(to_address, from_address, size_bytes, from_device);
  Contents& c = contents();
  if (!to_device && !from_device) {
    std::memmove(to, from, size_bytes);
  } else if (!to_device) {
    Range pinned;
    if (!find_host_range(to, &pinned)) log_host_wait(stream);  // CUDA waits for a copy to unpinned memory
    note_read(to, size_bytes, read_small(from_address, to, size_bytes) == size_bytes);
  } else if (size_bytes > kSmallCopyBytes) {
    forget_contents(to_address, size_bytes);
  } else if (!from_device) {
    const Lock lock(c.mutex);
    c.write(to_address, piece_of(from, size_bytes));
  } else if (c.any.load(std::memory_order_relaxed)) {
    const Lock lock(c.mutex);
    const auto pieces = c.find(from_address, size_bytes);
    c.erase(to_address, size_bytes);
    for (const auto& [address, piece] : pieces) c.write(to_address + (address - from_address), piece);
  }
}

void fill(uint64_t address, int byte, size_t size_bytes, uint64_t stream) {
  fill_pattern(address, static_cast<unsigned>(byte) & 0xff, 1, size_bytes, stream);
}

void fill_pattern(uint64_t address, unsigned value, size_t value_bytes, size_t count, uint64_t stream) {
  const size_t size_bytes = value_bytes * count;
  if (size_bytes == 0) return;
  context_activate();
  count_operation();
  bool captured = false;
  if (has_clock_now()) {
    captured = clock_work(clock_fill(size_bytes), stream, kGraphNodeMemset, "cudaMemsetAsync");
  } else {
    char line[128];
    std::snprintf(line, sizeof line, "[\"memset\",%" PRIu64 ",%u,%zu,%" PRIu64 "]", address, value & 0xff, size_bytes, stream);
    captured = capture_node(stream, kGraphNodeMemset, line);
    if (!captured) log_timed(line);
  }
  if (captured) return;
  const bool on_device = in_device_region(address);
  if (on_device) forget_values(address, size_bytes);
  if (on_device && size_bytes > kSmallCopyBytes) {
    forget_contents(address, size_bytes);
    return;
  }
  std::vector<unsigned char> small(on_device ? size_bytes : 0);
  unsigned char* const bytes = on_device ? small.data() : reinterpret_cast<unsigned char*>(address);  // pinned or managed memory
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * (i % value_bytes)));
  if (on_device) write_small(address, bytes, size_bytes);
}

void device_written() {
  Contents& c = contents();
  if (!c.any.load(std::memory_order_relaxed)) return;
  const Lock lock(c.mutex);
  c.clear();
}

size_t read_small(uint64_t address, void* to, size_t size_bytes) {
  std::memset(to, 0, size_bytes);
  Contents& c = contents();
  if (size_bytes == 0 || !c.any.load(std::memory_order_relaxed)) return 0;
  std::vector<std::pair<uint64_t, Piece>> pieces;
  {
    const Lock lock(c.mutex);
    pieces = c.find(address, size_bytes);
  }
  return copy_known(address, pieces, to);
}

void write_small(uint64_t address, const void* from, size_t size_bytes) {
  if (size_bytes == 0) return;
  if (size_bytes > kSmallCopyBytes) return forget_contents(address, size_bytes);
  Contents& c = contents();
  const Lock lock(c.mutex);
  c.write(address, piece_of(from, size_bytes));
}

void write_later(uint64_t address, size_t size_bytes, Later later) {
  if (size_bytes == 0) return;
  if (size_bytes > kSmallCopyBytes) return forget_contents(address, size_bytes);
  auto buffer = std::make_shared<Buffer>();
  buffer->bytes.resize(size_bytes);
  buffer->later = std::move(later);
  Contents& c = contents();
  const Lock lock(c.mutex);
  c.write(address, {std::move(buffer), 0, size_bytes});
}

bool any_contents() { return contents().any.load(std::memory_order_relaxed); }

void lock_contents() { contents().mutex.lock(); }
void unlock_contents() { contents().mutex.unlock(); }

}  // namespace gpucast::vgpu
