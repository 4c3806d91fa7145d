#include "gpucast/replay_events.h"

#include <fmt/format.h>

#include <iterator>
#include <string>

namespace gpucast {
namespace {

const char* op_name(OpKind kind) {
  switch (kind) {
    case OpKind::alloc:
      return "a";
    case OpKind::free:
    case OpKind::free_later:
      return "f";
    case OpKind::complete:
      return "c";
    case OpKind::record_stream:
      return "r";
    case OpKind::hold_stream:
      return "h";
    case OpKind::finish_stream:
      return "s";
    case OpKind::empty_cache:
      return "e";
    case OpKind::set_fraction:
      return "p";
    case OpKind::begin_pool:
      return "pb";
    case OpKind::end_pool:
      return "pe";
    case OpKind::release_pool:
      return "pr";
    case OpKind::nothing:
      return "k";
  }
  return "";
}

const char* state_name(BlockState state) {
  switch (state) {
    case BlockState::allocated:
      return "allocated";
    case BlockState::pending_free:
      return "pending";
    case BlockState::inactive:
      return "inactive";
  }
  return "";
}

bool names_block(OpKind kind) {
  return kind == OpKind::alloc || kind == OpKind::free || kind == OpKind::free_later || kind == OpKind::complete ||
         kind == OpKind::record_stream;
}

void add_step(const History& history, const ReplayStep& step, std::string* line) {
  const auto out = std::back_inserter(*line);
  fmt::format_to(out, R"({{"i":{},"op":"{}")", step.op, op_name(step.request.kind));
  if (names_block(step.request.kind)) {
    fmt::format_to(
        out, R"(,"id":"{}")",
        history.id_names.empty() || step.request.id >= history.id_names.size() ? step.request.id : history.id_names[step.request.id]);
  }
  if (step.request.kind == OpKind::alloc) fmt::format_to(out, R"(,"size":{})", step.request.size_bytes);
  if (names_block(step.request.kind) && step.block != kNoBlock) fmt::format_to(out, R"(,"addr":{})", step.block_address);
  if (step.out_of_memory) {
    *line += R"(,"error":"oom")";
  } else if (names_block(step.request.kind) && step.block == kNoBlock && step.request.kind != OpKind::complete) {
    *line += R"(,"error":"not live")";  // its allocation failed
  }
  const AllocatorStats& stats = step.allocator.stats();
  fmt::format_to(out, R"(,"allocated":{},"reserved":{},"active":{})", stats.allocated_bytes, stats.reserved_bytes, stats.active_bytes);
  *line += R"(,"events":[)";
  for (const AllocatorAction& action : step.actions) {
    if (line->back() == ']') *line += ',';
    fmt::format_to(out, R"(["{}",{},{},{}])", event_kind_name(action.kind), action.address, action.size_bytes,
                   history.streams[action.stream]);
  }
  *line += "]}\n";
}

std::string segments_line(const History& history, const std::vector<Segment>& segments) {
  std::string line = R"({"segments":[)";
  const auto out = std::back_inserter(line);
  bool first = true;
  for (const Segment& segment : segments) {
    int64_t allocated = 0;
    int64_t active = 0;
    int64_t requested = 0;
    std::string blocks;
    for (const SegmentBlock& block : segment.blocks) {
      if (block.state == BlockState::allocated) allocated += block.size_bytes;
      if (block.state != BlockState::inactive) {
        active += block.size_bytes;
        requested += block.requested_bytes;
      }
      fmt::format_to(std::back_inserter(blocks), R"({}[{},{},{},"{}"])", blocks.empty() ? "" : ",", block.address, block.size_bytes,
                     block.requested_bytes, state_name(block.state));
    }
    fmt::format_to(out,
                   R"({}{{"address":{},"total_size":{},"allocated_size":{},"active_size":{},"requested_size":{},"stream":{},"large":{},)"
                   R"("expandable":{},{}"blocks":[{}]}})",
                   first ? "" : ",", segment.address, segment.size_bytes, allocated, active, requested, history.streams[segment.stream],
                   segment.large, segment.expandable, segment.pool == 0 ? "" : fmt::format(R"("pool":{},)", segment.pool), blocks);
    first = false;
  }
  return line + "]}\n";
}

}  // namespace

ReplayResult replay_with_events(const History& history, const ReplaySettings& settings, std::ostream& out) {
  std::string line;
  int64_t events = 0;
  ReplayResult result = replay(history, settings, [&](const ReplayStep& step) {
    line.clear();
    add_step(history, step, &line);
    out << line;
    ++events;
  });
  out << segments_line(history, result.segments);
  const AllocatorStats& stats = result.stats;
  out << fmt::format(
      R"({{"summary":{{"events":{},"peak_allocated":{},"peak_reserved":{},"allocated":{},"reserved":{},"segment_allocs":{},"segment_frees":{},"ooms":{},"alloc_retries":{}}}}})"
      "\n",
      events, stats.peak_allocated_bytes, stats.peak_reserved_bytes, stats.allocated_bytes, stats.reserved_bytes, stats.segment_allocs,
      stats.segment_frees, stats.ooms, stats.alloc_retries);
  return result;
}

}  // namespace gpucast
