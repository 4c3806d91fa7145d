#include "src/ledger/device_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace gpucast {
namespace {

struct RunningSum {
  int64_t now = 0, peak = 0;
  void add(int64_t bytes) {
    now += bytes;
    peak = std::max(peak, now);
  }
};

// All addresses that PyTorch's allocator ever reserved, as merged [begin, end) ranges, by begin.
std::map<uint64_t, uint64_t> allocator_ranges(const Trace& trace) {
  std::map<uint64_t, uint64_t> ranges;
  for (const AllocatorEvent& event : trace.events) {
    if (event.kind != EventKind::segment_alloc && event.kind != EventKind::segment_map) continue;
    uint64_t& end = ranges[event.address];
    end = std::max(end, event.address + static_cast<uint64_t>(event.size_bytes));
  }
  std::map<uint64_t, uint64_t> merged;
  for (const auto& [begin, end] : ranges) {
    if (!merged.empty() && merged.rbegin()->second >= begin) {
      merged.rbegin()->second = std::max(merged.rbegin()->second, end);
    } else {
      merged.emplace(begin, end);
    }
  }
  return merged;
}

// Whether a release of cuDNN ("9.24.0.43") gives its workspaces without a GPU: 9.8 and newer.
bool answers_without_gpu(const std::string& release) {
  int major = 0, minor = 0;
  const char* end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, major);
  if (error == std::errc() && dot != end) std::from_chars(dot + 1, end, minor);
  return major > 9 || (major == 9 && minor >= 8);
}

}  // namespace

std::string how_to_ask_cudnn(const Process& process) {
  const std::string package = fmt::format("nvidia-cudnn-cu{}", cuda_major_of(process.cuda));
  if (process.cudnn_not_asked == "missing" && !answers_without_gpu(process.cudnn_required))
    return fmt::format("cuDNN {} of this PyTorch answers only on a GPU; to ask another one: --cudnn PATH (9.8 or newer)",
                       process.cudnn_required);
  if (process.cudnn_not_asked == "missing")
    return fmt::format("to have it asked: pip install --no-deps {}=={}", package, process.cudnn_required);
  if (process.cudnn_not_asked == "old") return "this cuDNN answers only on a GPU, 9.8 and newer do without: --cudnn PATH asks another one";
  if (process.cudnn_not_asked == "off") return "to have it asked: --cudnn auto";
  return "";
}

std::vector<LedgerLine> ledger_from_capture(const Trace& trace) {
  std::map<std::pair<StringId, StringId>, RunningSum> libraries;
  RunningSum outside;
  std::unordered_map<uint64_t, int64_t> outside_sizes;
  const std::map<uint64_t, uint64_t> ranges = allocator_ranges(trace);
  const auto in_allocator = [&](uint64_t address) {
    auto range = ranges.upper_bound(address);
    return range != ranges.begin() && address < std::prev(range)->second;
  };
  for (const VgpuEvent& event : trace.vgpu_events) {
    if (event.kind == VgpuEventKind::library_memory) libraries[{event.library, event.what}].add(event.size_bytes);
    if (event.kind == VgpuEventKind::device_alloc && !in_allocator(event.address)) {
      outside_sizes[event.address] = event.size_bytes;
      outside.add(event.size_bytes);
    }
    if (event.kind == VgpuEventKind::device_free) {
      const auto found = outside_sizes.find(event.address);
      if (found == outside_sizes.end()) continue;
      outside.add(-found->second);
      outside_sizes.erase(found);
    }
  }
  std::vector<LedgerLine> lines;
  for (const auto& [key, running] : libraries) {
    if (running.peak <= 0) continue;
    if (trace.strings.text(key.first) == "nccl") {
      lines.push_back({std::string(trace.strings.text(key.second)), "nccl", running.peak / 2, running.peak, 2 * running.peak,
                       "estimate: channels and connections by NCCL's source; published measurements lie within half and twice of it"});
      continue;
    }
    lines.push_back({std::string(trace.strings.text(key.second)), std::string(trace.strings.text(key.first)), running.peak, running.peak,
                     running.peak, "recorded: what the library took in this run"});
  }
  if (outside.peak > 0) {
    lines.push_back({"device memory allocated past PyTorch", "", outside.peak, outside.peak, outside.peak, "recorded: in this run"});
  }
  return lines;
}

}  // namespace gpucast
