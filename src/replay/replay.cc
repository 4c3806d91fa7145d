#include "gpucast/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "src/allocator/bfc_allocator.h"
#include "src/allocator/caching_allocator.h"
#include "src/base/alloc_conf.h"
#include "src/replay/linux_driver.h"
#include "src/replay/recorded_driver.h"

namespace gpucast {
namespace {

// "No limit": larger than any card, but small enough that sums do not overflow.
constexpr int64_t kUnlimitedBytes = int64_t{1} << 46;

std::unique_ptr<Driver> make_driver(const History& history, const ReplaySettings& settings) {
  const int64_t capacity_bytes = settings.capacity_bytes.value_or(kUnlimitedBytes);
  int64_t total_bytes = settings.device_total_bytes;
  if (total_bytes == 0 && !settings.capacity_bytes) total_bytes = history.device_total_bytes;
  if (total_bytes == 0) total_bytes = capacity_bytes;
  switch (settings.addresses) {
    case AddressPolicy::ascending:
      return std::make_unique<AscendingDriver>(capacity_bytes);
    case AddressPolicy::recorded:
      return std::make_unique<RecordedDriver>(&history, total_bytes);
    case AddressPolicy::linux_driver:
      break;
  }
  return std::make_unique<LinuxDriver>(capacity_bytes, total_bytes);
}

// One line for each allocator (docs/explanation/other-allocators.md).
std::unique_ptr<Allocator> make_allocator(const History& history, const std::string& alloc_conf, Driver* driver,
                                          std::vector<std::string>* unknown_settings) {
  if (const auto bfc = parse_bfc_conf(alloc_conf)) {
    *unknown_settings = bfc->unknown;
    return std::make_unique<BfcAllocator>(*bfc, history.streams.size(), driver);
  }
  const AllocConf conf = parse_alloc_conf(alloc_conf, history.torch);
  *unknown_settings = conf.unknown;
  const std::vector<uint64_t>& handles = history.stream_handles.empty() ? history.streams : history.stream_handles;
  return std::make_unique<CachingAllocator>(conf, CachingAllocator::Streams{handles, history.stream_ids}, driver);
}

std::string describe(const AllocatorAction& action) {
  return fmt::format("{} of {} B at {:#x}", event_kind_name(action.kind), action.size_bytes, action.address);
}

// Compares the replayed allocator's actions in an op with the recorded ones; "" when they are equal.
std::string compare(const History& history, int64_t op, const std::vector<AllocatorAction>& actions) {
  const size_t begin = history.first_action[static_cast<size_t>(op)];
  const size_t count = history.first_action[static_cast<size_t>(op) + 1] - begin;
  for (size_t i = 0; i < std::max(count, actions.size()); ++i) {
    if (i >= count) return fmt::format("event {}: {} is not in the recording", begin + i, describe(actions[i]));
    const AllocatorAction& recorded = history.actions[begin + i];
    if (i >= actions.size()) return fmt::format("event {}: the recorded {} did not happen", begin + i, describe(recorded));
    if (recorded.kind == EventKind::oom && actions[i].kind == EventKind::oom) continue;  // other memory use of the card is unknown
    if (!(actions[i] == recorded)) {
      return fmt::format("event {}: {}, recorded {}", begin + i, describe(actions[i]), describe(recorded));
    }
  }
  return "";
}

std::string compare_segments(const History& history, const std::vector<Segment>& segments) {
  if (!history.end_segments) return "";
  std::vector<RecordedSegment> ours;
  ours.reserve(segments.size());
  for (const Segment& segment : segments) ours.push_back({segment.address, segment.size_bytes, history.streams[segment.stream]});
  if (ours == *history.end_segments) return "";
  return fmt::format("at the end: {} segments, recorded {}, or others", ours.size(), history.end_segments->size());
}

// Calls the allocator for each op, and keeps the blocks by id.
class OpRunner {
 public:
  struct Outcome {
    BlockRef block = kNoBlock;
    uint64_t address = 0;
    bool failed = false;
  };

  // A history that begins in the middle has blocks from its start.
  OpRunner(const History& history, Allocator* allocator) : history_(history), allocator_(*allocator), blocks_(history.id_count, kNoBlock) {
    const std::vector<uint32_t> restored = allocator_.restore(history.start);
    for (size_t i = 0; i < restored.size(); ++i) {
      if (history.start_ids[i] != UINT32_MAX) blocks_[history.start_ids[i]] = restored[i];
    }
  }

  Outcome run_op(const AllocOp& op) {
    Outcome out;
    if (doomed_ != kNoBlock) allocator_.free(std::exchange(doomed_, kNoBlock));
    switch (op.kind) {
      case OpKind::alloc:
        out.block = allocator_.allocate(op.size_bytes, op.stream);
        out.failed = out.block == kNoBlock;
        if (op.failed_when_recorded) {
          doomed_ = out.block;
        } else {
          blocks_[op.id] = out.block;
        }
        if (!out.failed) out.address = allocator_.address(out.block);
        break;
      case OpKind::free:
      case OpKind::free_later:
      case OpKind::complete:
      case OpKind::record_stream:
        out.block = blocks_[op.id];
        if (out.block == kNoBlock) break;
        if (op.kind == OpKind::complete) {
          allocator_.complete(std::exchange(blocks_[op.id], kNoBlock));
          out.block = kNoBlock;
          break;
        }
        out.address = allocator_.address(out.block);
        if (op.kind == OpKind::record_stream) {
          allocator_.record_stream(out.block, op.stream);
        } else if (op.kind == OpKind::free_later) {
          blocks_[op.id] = allocator_.free_later(out.block);  // from now on, the ticket of the free
        } else {
          blocks_[op.id] = kNoBlock;
          allocator_.free(out.block);
        }
        break;
      case OpKind::hold_stream:
        allocator_.hold_stream(op.stream);
        break;
      case OpKind::finish_stream:
        for (size_t stream = 0; stream < history_.streams.size(); ++stream) {
          if (op.stream == AllocOp::kEveryStream || op.stream == stream) allocator_.finish_stream(static_cast<StreamIndex>(stream));
        }
        break;
      case OpKind::empty_cache:
        allocator_.empty_cache();
        break;
      case OpKind::set_fraction:
        allocator_.set_memory_fraction(std::bit_cast<double>(op.size_bytes));
        break;
      case OpKind::begin_pool:
        allocator_.begin_pool(op.id, op.stream == AllocOp::kEveryStream ? std::nullopt : std::optional(op.stream));
        break;
      case OpKind::end_pool:
        allocator_.end_pool(op.id);
        break;
      case OpKind::release_pool:
        allocator_.release_pool(op.id);
        break;
      case OpKind::nothing:
        break;
    }
    return out;
  }

 private:
  const History& history_;
  Allocator& allocator_;
  std::vector<BlockRef> blocks_;
  BlockRef doomed_ = kNoBlock;  // of an allocation that failed in the recording but not here; freed before the next op
};

}  // namespace

ReplayResult replay(const History& history, const ReplaySettings& settings, const StepObserver& observer) {
  ReplayResult out;
  out.settings = settings;
  const bool recorded = settings.addresses == AddressPolicy::recorded;
  const std::unique_ptr<Driver> driver = make_driver(history, settings);
  const std::unique_ptr<Allocator> chosen = make_allocator(history, settings.alloc_conf, driver.get(), &out.unknown_settings);
  Allocator& allocator = *chosen;
  OpRunner runner(history, &allocator);

  std::vector<AllocatorAction> actions;
  if (recorded || observer) allocator.record_actions(&actions);
  int64_t peak_reserved_bytes = allocator.stats().peak_reserved_bytes;
  out.allocated_at_peak_bytes = allocator.stats().allocated_bytes;
  out.largest_free_block_at_peak_bytes = allocator.largest_free_block_bytes();

  for (size_t i = 0; i < history.ops.size(); ++i) {
    const AllocOp& op = history.ops[i];
    const auto index = static_cast<int64_t>(i);
    actions.clear();
    if (recorded) static_cast<RecordedDriver&>(*driver).begin_op(index);
    const auto [block, address, failed] = runner.run_op(op);

    if (allocator.stats().peak_reserved_bytes > peak_reserved_bytes) {
      peak_reserved_bytes = allocator.stats().peak_reserved_bytes;
      out.peak_reserved_op = index;
      out.allocated_at_peak_bytes = allocator.stats().allocated_bytes;
      out.largest_free_block_at_peak_bytes = allocator.largest_free_block_bytes();
      out.rounding_at_peak_bytes = allocator.stats().active_bytes - allocator.stats().requested_bytes;
    }
    if (recorded && out.first_difference.empty()) {
      out.first_difference = compare(history, index, actions);
      if (!out.first_difference.empty()) out.difference_op = index;
    }
    if (observer) observer({index, op, actions, allocator, block, address, failed});
    if (failed) {
      std::optional<ReplayOom>& first = op.failed_when_recorded ? out.first_recorded_oom : out.first_oom;
      if (!first) {
        first = {index, history.first_action.empty() ? index : static_cast<int64_t>(history.first_action[i]), allocator.out_of_memory(),
                 allocator.largest_free_block_bytes()};
      }
      if (!op.failed_when_recorded) {
        ++out.ooms;
        if (settings.stop_at_oom) break;
      }
    }
  }

  out.stats = allocator.stats();
  out.segments = allocator.segments();
  if (recorded) {
    if (out.first_difference.empty()) out.first_difference = compare_segments(history, out.segments);
    out.matches_recorded = out.first_difference.empty();
  }
  return out;
}

namespace {

// The highest sum of blocks in use, each with its smallest possible size.
int64_t least_live_bytes(const History& history, const std::string& alloc_conf) {
  const AllocConf conf = parse_alloc_conf(alloc_conf, history.torch);
  std::vector<int64_t> sizes(history.id_count);
  int64_t live = 0;
  size_t next_id = 0;
  for (const Segment& segment : history.start) {
    for (const SegmentBlock& block : segment.blocks) {
      const uint32_t id = history.start_ids[next_id++];
      if (id != UINT32_MAX) live += sizes[id] = block.size_bytes;
    }
  }
  int64_t most = live;
  for (const AllocOp& op : history.ops) {
    if (op.kind == OpKind::alloc && !op.failed_when_recorded) {
      live += sizes[op.id] = conf.round_size(op.size_bytes);
      most = std::max(most, live);
    } else if (op.kind == OpKind::free || op.kind == OpKind::free_later) {
      live -= std::exchange(sizes[op.id], 0);
    }
  }
  return most;
}

}  // namespace

std::optional<int64_t> min_capacity_bytes(const History& history, const std::string& alloc_conf) {
  const auto run = [&](std::optional<int64_t> capacity_bytes) {
    ReplaySettings settings;
    settings.alloc_conf = alloc_conf;
    settings.capacity_bytes = capacity_bytes;
    settings.stop_at_oom = true;
    return replay(history, settings);
  };
  const ReplayResult unlimited = run(std::nullopt);
  if (unlimited.first_oom) return std::nullopt;
  // The result is between the rounded sum of the requests and the reserved memory without a limit.
  constexpr int64_t kPage = Driver::kPageBytes;
  int64_t too_little = std::max<int64_t>(least_live_bytes(history, alloc_conf) / kPage - 1, 0);  // zero bytes would be no card
  int64_t enough = (unlimited.stats.peak_reserved_bytes + kPage - 1) / kPage;
  // This capacity nearly always suffices. But expandable segments depend on the card's size, which is smaller now.
  while (run(enough * kPage).first_oom) enough += std::max<int64_t>(10, enough / 50);
  while (enough - too_little > 1) {
    const int64_t middle = too_little + (enough - too_little) / 2;
    (run(middle * kPage).first_oom ? too_little : enough) = middle;
  }
  return enough * kPage;
}

}  // namespace gpucast
