// For tests: a profiler trace, written event by event.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "gpucast/gpu.h"
#include "src/orchestrate/profile_facts.h"
#include "src/orchestrate/sequence.h"

namespace gpucast {

class HandMadeTrace {
 public:
  HandMadeTrace() { trace_.threads.resize(1); }

  struct Op {
    int64_t number = -1;  // sequence number
    std::string_view dims = "", types = "", concrete = "", strides = "";
  };
  void op(std::string_view name, int64_t begin_ns, int64_t end_ns) { op(name, begin_ns, end_ns, Op()); }
  void op(std::string_view name, int64_t begin_ns, int64_t end_ns, const Op& more) {
    ProfileSpan& span = add(SpanKind::op, name, begin_ns, end_ns);
    span.sequence_number = more.number;
    if (!more.dims.empty()) span.dims = trace_.strings.intern(more.dims);
    if (!more.types.empty()) span.types = trace_.strings.intern(more.types);
    if (!more.strides.empty()) span.strides = trace_.strings.intern(more.strides);
    if (!more.concrete.empty()) span.concrete = trace_.strings.intern(more.concrete);
  }
  void module(std::string_view name, int64_t begin_ns, int64_t end_ns) { add(SpanKind::module, name, begin_ns, end_ns); }
  void annotation(std::string_view name, int64_t begin_ns, int64_t end_ns) { add(SpanKind::annotation, name, begin_ns, end_ns); }

  // A block; free_ns 0: never.
  void block(int64_t bytes, int64_t alloc_ns, int64_t free_ns = 0) {
    const uint64_t address = next_address_ += 4096;
    memory(address, bytes, alloc_ns);
    if (free_ns != 0) memory(address, -bytes, free_ns);
  }
  void memory(uint64_t address, int64_t bytes, int64_t time_ns) {
    ProfileMemory event;
    event.time_ns = time_ns;
    event.address = address;
    event.bytes = bytes;
    trace_.memory.push_back(event);
  }

  ProfileFacts facts() {
    std::stable_sort(trace_.spans.begin(), trace_.spans.end(), [](const ProfileSpan& a, const ProfileSpan& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    std::stable_sort(trace_.memory.begin(), trace_.memory.end(),
                     [](const ProfileMemory& a, const ProfileMemory& b) { return a.time_ns < b.time_ns; });
    return gather_facts(std::move(trace_), find_gpu("rtx3060"));
  }

 private:
  ProfileSpan& add(SpanKind kind, std::string_view name, int64_t begin_ns, int64_t end_ns) {
    ProfileSpan span;
    span.kind = kind;
    span.name = trace_.strings.intern(name);
    span.begin_ns = begin_ns;
    span.end_ns = end_ns;
    trace_.spans.push_back(span);
    return trace_.spans.back();
  }

  ProfileTrace trace_;
  uint64_t next_address_ = 0x10000;
};

// Bytes of the kept blocks that are alive at `time_ns`, after frees at that time.
inline int64_t live_bytes(const Sequence& sequence, int64_t time_ns) {
  int64_t sum = 0;
  for (const GpuBlock& block : sequence.blocks) {
    if (block.kept() && block.alloc.time_ns <= time_ns && time_ns < block.free.time_ns) sum += block.size_bytes;
  }
  return sum;
}

// The largest total of kept blocks alive at the same time.
inline int64_t peak_bytes(const Sequence& sequence) {
  std::vector<std::pair<Moment, int64_t>> changes;
  for (const GpuBlock& block : sequence.blocks) {
    if (!block.kept()) continue;
    changes.emplace_back(block.alloc, block.size_bytes);
    if (block.free != kNeverFreed) changes.emplace_back(block.free, -block.size_bytes);
  }
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t now = 0, most = 0;
  for (const auto& [moment, bytes] : changes) most = std::max(most, now += bytes);
  return most;
}

}  // namespace gpucast
