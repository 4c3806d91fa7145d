// A launch from some of its warps: all of a small launch; of a larger one the blocks at the edges of the grid, and some between them.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "src/kernels/kernel_counts.h"
#include "src/kernels/launch_memory.h"
#include "src/kernels/warp.h"

namespace gpucast {
namespace ptx {
namespace {

constexpr uint64_t kFewBlocks = 8, kMostBlocks = 24;
constexpr uint32_t kAllWarps = 16, kSomeWarps = 8;  // of a block; with more warps than kAllWarps some are run
// A launch of so few blocks and instructions runs whole: blocks of a kernel for a list of tensors are not alike.
constexpr uint64_t kShortGrid = 256, kShortLaunch = 50'000, kUnequalLaunch = 4'000'000;
constexpr double kSharesNothing = 1.01, kBeyondExtent = 1.25;
constexpr uint64_t kMostStepsOfLaunch = 48'000'000;
constexpr uint64_t kMostStepsOfSharing = 200'000;  // of a block

struct SampledBlock {
  std::array<uint32_t, 3> at = {};
  double weight = 1;
  bool scout = false;  // one of a few that run first: where they are all alike, all blocks are
};

struct Piece {  // of an axis
  uint32_t begin = 0, end = 0, middle = 0;
};

// The first, the last and what lies between in `samples` pieces, or one more: the pieces and their middles lie symmetrically, so that
// counts that grow evenly along the axis add up exactly.
std::vector<Piece> pieces_of(uint32_t size, uint32_t samples) {
  std::vector<Piece> out;
  if (size <= samples + 2) {
    for (uint32_t i = 0; i < size; ++i) out.push_back({i, i + 1, i});
    return out;
  }
  const uint32_t between = size - 2;
  if (between % 2 != samples % 2) ++samples;
  const uint32_t half = samples / 2;
  std::vector<Piece> left = {{0, 1, 0}};
  for (uint32_t s = 0; s < half; ++s) {
    const auto edge = [&](uint32_t number) { return 1 + static_cast<uint32_t>(uint64_t{between} * number / samples); };
    left.push_back({edge(s), edge(s + 1), edge(s) + (edge(s + 1) - edge(s) - 1) / 2});
  }
  out = left;
  const uint32_t begin = left.back().end, end = size - begin;
  if (begin < end) out.push_back({begin, end, begin + (end - begin - 1) / 2});
  for (auto piece = left.rbegin(); piece != left.rend(); ++piece) {
    out.push_back({size - piece->end, size - piece->begin, size - 1 - piece->middle});
  }
  return out;
}

std::vector<SampledBlock> sample_blocks(const std::array<uint32_t, 3>& grid, bool whole) {
  std::array<std::vector<Piece>, 3> pieces;
  std::array<uint32_t, 3> samples = {6, 1, 1};
  if (grid[0] > 1 && grid[1] > 1) samples = {3, 1, 1};
  if (whole) samples = grid;
  for (size_t a = 0; a < 3; ++a) pieces[a] = pieces_of(grid[a], samples[a]);
  // With three long axes the corners are too many: the last axis is then one piece. Its ends say how far buffers reach.
  const std::array<uint32_t, 3> last = {grid[0] - 1, grid[1] - 1, grid[2] - 1};
  std::vector<SampledBlock> out;
  if (!whole && pieces[0].size() * pieces[1].size() * pieces[2].size() > kMostBlocks) {
    pieces[2] = {{0, grid[2], (grid[2] - 1) / 2}};
    out = {{{0, 0, 0}, 0, true}, {last, 0, true}};
  }
  const std::array<size_t, 3> sizes = {pieces[0].size(), pieces[1].size(), pieces[2].size()};
  std::array<size_t, 3> at = {};
  for (at[2] = 0; at[2] < sizes[2]; ++at[2]) {
    for (at[1] = 0; at[1] < sizes[1]; ++at[1]) {
      for (at[0] = 0; at[0] < sizes[0]; ++at[0]) {
        SampledBlock block;
        bool corner = true;
        for (size_t a = 0; a < 3; ++a) {
          const Piece& piece = pieces[a][at[a]];
          block.at[a] = piece.middle;
          block.weight *= piece.end - piece.begin;
          corner = corner && (at[a] == 0 || at[a] == sizes[a] - 1);
        }
        const bool inside = at[1] == sizes[1] / 2 && at[2] == sizes[2] / 2 && (at[0] == sizes[0] / 2 || at[0] == sizes[0] / 4);
        block.scout = corner || inside;
        out.push_back(block);
      }
    }
  }
  return out;
}

// `all`: they have different tasks.
std::vector<uint32_t> sample_warps(uint32_t warps, bool all) {
  std::vector<uint32_t> out(std::min(warps, all || warps <= kAllWarps ? warps : kSomeWarps));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = out.size() == warps ? static_cast<uint32_t>(i) : static_cast<uint32_t>(i * (warps - 1) / (out.size() - 1));
  }
  return out;
}

constexpr std::array<double KernelCounts::*, 23> kSums = {&KernelCounts::tile_bytes,
                                                          &KernelCounts::gathered_sectors,
                                                          &KernelCounts::atomic_passes,
                                                          &KernelCounts::block_atomic_bytes,
                                                          &KernelCounts::load_sectors,
                                                          &KernelCounts::store_sectors,
                                                          &KernelCounts::atomic_sectors,
                                                          &KernelCounts::async_load_bytes,
                                                          &KernelCounts::async_store_bytes,
                                                          &KernelCounts::block_load_bytes,
                                                          &KernelCounts::block_store_bytes,
                                                          &KernelCounts::block_touched_bytes,
                                                          &KernelCounts::shared_wavefronts,
                                                          &KernelCounts::fp32,
                                                          &KernelCounts::fp16,
                                                          &KernelCounts::fp64,
                                                          &KernelCounts::integer,
                                                          &KernelCounts::division,
                                                          &KernelCounts::special,
                                                          &KernelCounts::control,
                                                          &KernelCounts::memory,
                                                          &KernelCounts::flops,
                                                          &KernelCounts::barriers};
constexpr std::array kChainParts = {&WarpChain::cycles, &WarpChain::load_cycles, &WarpChain::loads, &WarpChain::shared_waits};

void add_longest(const WarpChain& chain, WarpChain* out) {
  for (const auto part : kChainParts) out->*part = std::max(out->*part, chain.*part);
}

struct BlockCounts {
  KernelCounts counts;
  ByteSet loads, stores, atomics;
  ByteSet touched;  // by loads and stores, in whole sectors
  bool warps_are_alike = true;
  bool ends_tell_bytes = true;  // from the first and the last warp follow the bytes of all
};

bool alike(const KernelCounts& a, const KernelCounts& b) {
  const auto same = [](auto part, const auto& x, const auto& y) { return x.*part == y.*part; };
  return std::all_of(kSums.begin(), kSums.end(), [&](auto part) { return same(part, a, b); }) &&
         std::all_of(kChainParts.begin(), kChainParts.end(), [&](auto part) { return same(part, a.longest, b.longest); }) &&
         a.tensor_flops == b.tensor_flops && a.loads_in_flight == b.loads_in_flight;
}

void add_warp(const WarpCounts& warp, double weight, KernelCounts* out) {
  out->load_sectors += weight * warp.load_sectors;
  out->store_sectors += weight * warp.store_sectors;
  out->atomic_sectors += weight * warp.atomic_sectors;
  out->atomic_passes += weight * warp.atomic_passes;
  out->gathered_sectors += weight * warp.gathered_sectors;
  out->async_load_bytes += weight * (warp.async_load + warp.expected);
  out->tile_bytes += weight * warp.expected;
  out->async_store_bytes += weight * warp.async_store;
  out->shared_wavefronts += weight * warp.wavefronts;
  for (size_t p = 0; p < kPrecisionCount; ++p) out->tensor_flops[p] += weight * warp.tensor[p];
  const auto work = [&](Work w) { return weight * warp.works[static_cast<size_t>(w)]; };
  out->fp32 += work(Work::fp32);
  out->fp16 += work(Work::fp16);
  out->fp64 += work(Work::fp64);
  out->integer += work(Work::integer) + work(Work::division) + work(Work::long_division);
  out->division += work(Work::division) * (kDivisionInstructions - 1) + work(Work::long_division) * (kLongDivisionInstructions - 1);
  out->special += work(Work::special);
  out->control += work(Work::control);
  out->memory += work(Work::memory);
  out->flops += weight * warp.flops;
  out->barriers += weight * warp.barriers;
  out->loads_in_flight = std::max(out->loads_in_flight, warp.in_flight);
  out->assumed_values = out->assumed_values || warp.assumed;
  add_longest(warp.chain, &out->longest);
}

// The sectors that these bytes are in.
ByteSet whole_sectors(const std::vector<ByteSet>& sets) {
  constexpr uint64_t kSector = 32;
  std::vector<ByteRange> out;
  for (const ByteSet& set : sets)
    for (const ByteRange& range : set.ranges)
      out.push_back({range.begin / kSector * kSector, (range.end + kSector - 1) / kSector * kSector});
  return union_of(std::move(out));
}

// Bytes of the warps of one block: what they share is common to all, the rest is each warp's own.
double block_bytes(const std::vector<ByteSet>& sets, const ByteSet& together, uint32_t warps) {
  const auto run = static_cast<double>(sets.size());
  if (sets.size() == warps || sets.size() < 2) return together.bytes();
  double each = 0;
  for (const ByteSet& set : sets) each += set.bytes() / run;
  const double own = std::max(0.0, together.bytes() - each) / (run - 1);
  return std::max(0.0, each - own) + own * warps;
}

// Bytes of a launch from some of its blocks. Blocks that share bytes, such as tiles of a matrix, cover a buffer once: its extent is the
// most. A buffer begins at an address that the launch's parameters state.
double launch_bytes(const std::vector<ByteSet>& sets, double sum, bool all, const std::string& parameters) {
  const ByteSet together = union_of(sets);
  if (all) return together.bytes();
  std::vector<uint64_t> buffers = {0};
  for (size_t at = 0; at + 8 <= parameters.size(); at += 8) {
    const uint64_t value = integer_in(parameters, at, 8).value_or(0);
    if (value >= 1ULL << 20) buffers.push_back(value);
  }
  std::sort(buffers.begin(), buffers.end());
  double extent = 0;
  size_t buffer = 0;
  uint64_t begin = 0, end = 0;
  for (auto [from, to] : together.ranges) {
    while (from < to) {  // a range may go from one buffer into the next
      const auto next = std::upper_bound(buffers.begin(), buffers.end(), from);
      const auto here = static_cast<size_t>(next - buffers.begin());
      const uint64_t part = next == buffers.end() ? to : std::min(to, *next);
      if (here != buffer) extent += static_cast<double>(end - begin), begin = from, buffer = here, end = from;
      end = std::max(end, part);
      from = part;
    }
  }
  extent += static_cast<double>(end - begin);
  // Blocks that share nothing and reach a little beyond the sampled extent: the last block of a buffer was not among the samples.
  double each = 0;
  for (const ByteSet& set : sets) each += set.bytes();
  if (each <= kSharesNothing * together.bytes() && sum <= kBeyondExtent * extent) return sum;
  return std::max(together.bytes(), std::min(sum, extent));
}

class LaunchCounter {
 public:
  LaunchCounter(const PtxModule& module, const Kernel& kernel, const KernelLaunch& launch, const KnownValue& known)
      : kernel_(kernel),
        launch_(launch),
        warp_(module, kernel, launch, known),
        shared_(known, kernel.shares_numbers || (known && kernel.shared_decides) ? shared_bytes_of(kernel, launch) : 0) {
    const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    std::vector<std::unique_ptr<Warp>>& warps = kernel.shared_decides ? team_ : sharing_;
    for (uint32_t first = 0; (kernel.shares_numbers || (known && kernel.shared_decides)) && first < threads; first += kLanes)
      warps.push_back(std::make_unique<Warp>(module, kernel, launch, known, &shared_));
  }

  KernelCounts count() {
    const uint64_t threads = uint64_t{launch_.block[0]} * launch_.block[1] * launch_.block[2];
    const uint64_t blocks = uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2];
    warps_ = static_cast<uint32_t>((threads + kLanes - 1) / kLanes);
    out_.blocks = static_cast<double>(blocks);
    out_.warps = static_cast<double>(blocks) * warps_;
    bool whole = blocks <= kFewBlocks;
    if (!whole && blocks <= kShortGrid) {
      first_ = run_block({0, 0, 0});
      whole = steps_ * blocks <= kShortLaunch;
    }
    std::vector<SampledBlock> samples = sample_blocks(launch_.grid, whole);
    all_ = samples.size() == blocks && warps_ <= kAllWarps;
    if (!all_ && blocks_are_alike(samples)) {
      std::erase_if(samples, [](const SampledBlock& sample) { return !sample.scout; });
      for (SampledBlock& sample : samples) sample.weight = out_.blocks / static_cast<double>(samples.size());
    } else if (!whole && blocks <= kShortGrid && steps_ / std::max<size_t>(1, scouts_.size()) * blocks <= kUnequalLaunch) {
      // A persistent kernel: each block takes the tiles that come to it.
      samples = sample_blocks(launch_.grid, true);
      all_ = warps_ <= kAllWarps;
    }
    double done = 0;
    std::vector<ByteSet> loads, stores, atomics, touched;
    for (const SampledBlock& sample : samples) {
      if (steps_ > kMostStepsOfLaunch) {
        out_.limit = "a launch's most steps";
        break;
      }
      if (!out_.limit.empty()) break;  // a warp does not end, and the others would not either
      BlockCounts block = take(sample.at);
      add(block.counts, sample.weight);
      loads.push_back(std::move(block.loads));
      stores.push_back(std::move(block.stores));
      atomics.push_back(std::move(block.atomics));
      touched.push_back(std::move(block.touched));
      done += sample.weight;
    }
    if (done > 0 && done < out_.blocks) scale(out_.blocks / done);
    for (const auto part : kChainParts) out_.mean.*part /= std::max(done, 1.0);
    out_.unique_load_bytes = launch_bytes(loads, out_.block_load_bytes, all_, launch_.parameters);
    out_.unique_store_bytes = launch_bytes(stores, out_.block_store_bytes, all_, launch_.parameters);
    out_.touched_bytes = launch_bytes(touched, out_.block_touched_bytes, all_, launch_.parameters);
    out_.atomic_bytes = launch_bytes(atomics, out_.block_atomic_bytes, all_, launch_.parameters);
    const auto written = std::ranges::count(kernel_.instructions, Work::memory, &Instruction::work);
    if (written > 0) out_.memory_repeats = out_.memory / (out_.warps * static_cast<double>(written));
    for (size_t m = 1; m < warp_.met.size(); ++m) {
      if (warp_.met[m] != 0) out_.not_understood.push_back(kernel_.messages[m - 1]);
    }
    return std::move(out_);
  }

 private:
  // All warps, or what sample_warps names. If the warps of the first block are alike, only the first and the last run in other blocks, and
  // all if these two differ.
  BlockCounts run_block(const std::array<uint32_t, 3>& at) {
    if (!team_.empty()) {
      std::vector<uint32_t> all(team_.size());
      std::iota(all.begin(), all.end(), 0);
      return run_warps(at, all);
    }
    const std::vector<uint32_t> warps = sample_warps(warps_, kernel_.hands_numbers), ends = {0, warps_ - 1};
    if (warps.size() > 2 && ends_will_do_ && !all_) {
      BlockCounts out = run_warps(at, ends);
      if (out.warps_are_alike) return out;
    }
    BlockCounts out = run_warps(at, warps);
    if (!std::exchange(ran_a_block_, true)) ends_will_do_ = out.warps_are_alike && out.ends_tell_bytes;
    return out;
  }
  BlockCounts run_warps(const std::array<uint32_t, 3>& at, const std::vector<uint32_t>& warps) {
    BlockCounts out;
    KernelCounts first;
    std::vector<ByteSet> loads, stores, atomics, touched;
    run_team(at);
    const std::vector<SharedLoads> loads_of_warps = shared_loads(at);
    for (const uint32_t w : warps) {
      const SharedLoads* const known_loads = loads_of_warps.empty() ? nullptr : &loads_of_warps[w];
      WarpCounts counts = team_.empty() ? warp_.run(at, w, known_loads) : team_[w]->counted();
      steps_ += counts.steps;
      if (counts.cut_off) out.counts.limit = "a warp's most steps";
      add_warp(counts, warps_ / static_cast<double>(warps.size()), &out.counts);
      KernelCounts alone;
      add_warp(counts, 1, &alone);
      if (w == warps.front()) first = alone;
      out.warps_are_alike = out.warps_are_alike && alike(first, alone);
      loads.push_back(union_of(std::move(counts.loads)));
      stores.push_back(union_of(std::move(counts.stores)));
      atomics.push_back(union_of(std::move(counts.atomics)));
      touched.push_back(whole_sectors({loads.back(), stores.back()}));
      if (counts.cut_off) break;
    }
    out.loads = union_of(loads);
    out.stores = union_of(stores);
    out.atomics = union_of(atomics);
    out.touched = union_of(touched);
    out.counts.block_touched_bytes = block_bytes(touched, out.touched, warps_);
    out.counts.block_atomic_bytes = block_bytes(atomics, out.atomics, warps_);
    out.counts.block_load_bytes = block_bytes(loads, out.loads, warps_);
    out.counts.block_store_bytes = block_bytes(stores, out.stores, warps_);
    const auto of_ends = [&](const std::vector<ByteSet>& sets) {
      const std::vector<ByteSet> two = {sets.front(), sets.back()};
      return block_bytes(two, union_of(two), warps_);
    };
    out.ends_tell_bytes = of_ends(loads) == out.counts.block_load_bytes && of_ends(stores) == out.counts.block_store_bytes;
    return out;
  }
  // All warps of a block, each to its next barrier.
  void run_team(const std::array<uint32_t, 3>& at) {
    shared_.begin_block();
    for (uint32_t w = 0; w < team_.size(); ++w) team_[w]->begin(at, w);
    for (bool any = !team_.empty(); any;) {
      any = false;
      for (auto& warp : team_) {
        warp->pass_barrier();
        warp->count_to_barrier();
        any = any || warp->waits();
      }
    }
    for (auto& warp : team_) {
      warp_.reads_values = warp_.reads_values || warp->reads_values;
      for (size_t m = 0; m < warp_.met.size(); ++m) warp_.met[m] |= warp->met[m];
    }
  }
  // What each warp of a block loads from shared memory, where warps share numbers. None: it is not known.
  std::vector<SharedLoads> shared_loads(const std::array<uint32_t, 3>& at) {
    std::vector<SharedLoads> out(sharing_.size(), SharedLoads(kernel_.requests));
    shared_.begin_block();
    for (uint32_t w = 0; w < sharing_.size(); ++w) sharing_[w]->begin(at, w);
    for (bool any = !sharing_.empty(); any;) {
      any = false;
      uint64_t steps = 0;
      for (uint32_t w = 0; w < sharing_.size(); ++w) {
        Warp& warp = *sharing_[w];
        warp.pass_barrier();
        warp.share_to_barrier(kMostStepsOfSharing, &out[w]);
        any = any || warp.waits();
        steps += warp.steps();
        warp_.reads_values = warp_.reads_values || warp.reads_values;
      }
      if (shared_.failed || steps > kMostStepsOfSharing) {
        sharing_.clear();  // the numbers of other blocks are not known either
        return {};
      }
    }
    return out;
  }
  // A block's counts, if it ran before without running it again.
  BlockCounts take(const std::array<uint32_t, 3>& at) {
    if (at == std::array<uint32_t, 3>{} && first_) return *std::exchange(first_, std::nullopt);
    const auto found = scouts_.find(at);
    return found != scouts_.end() ? std::move(found->second) : run_block(at);
  }
  // Not so where numbers on the card say what a block does.
  bool blocks_are_alike(const std::vector<SampledBlock>& samples) {
    const auto few = std::count_if(samples.begin(), samples.end(), [](const SampledBlock& sample) { return sample.scout; });
    if (static_cast<size_t>(few) + 2 > samples.size()) return false;
    const BlockCounts* before = nullptr;
    for (const SampledBlock& sample : samples) {
      if (!sample.scout) continue;
      const BlockCounts& block = scouts_.emplace(sample.at, take(sample.at)).first->second;
      if (warp_.reads_values || !block.counts.limit.empty() || (before != nullptr && !alike(before->counts, block.counts))) return false;
      before = &block;
    }
    return true;
  }
  void add(const KernelCounts& block, double weight) {
    for (const auto sum : kSums) out_.*sum += weight * (block.*sum);
    for (size_t p = 0; p < kPrecisionCount; ++p) out_.tensor_flops[p] += weight * block.tensor_flops[p];
    for (const auto part : kChainParts) out_.mean.*part += weight * (block.longest.*part);
    add_longest(block.longest, &out_.longest);
    out_.loads_in_flight = std::max(out_.loads_in_flight, block.loads_in_flight);
    out_.assumed_values = out_.assumed_values || block.assumed_values;
    if (!block.limit.empty()) out_.limit = block.limit;
  }
  void scale(double by) {
    for (const auto sum : kSums) out_.*sum *= by;
    for (double& value : out_.tensor_flops) value *= by;
  }

  const Kernel& kernel_;
  const KernelLaunch& launch_;
  Warp warp_;
  LaunchMemory shared_;
  std::vector<std::unique_ptr<Warp>> team_;     // all warps of a block, where values pass through shared memory; else none
  std::vector<std::unique_ptr<Warp>> sharing_;  // the same for numbers that are found before the warps are counted
  uint32_t warps_ = 0;
  uint64_t steps_ = 0;
  KernelCounts out_;
  bool all_ = false;  // all warps of all blocks run
  bool ran_a_block_ = false, ends_will_do_ = false;
  std::optional<BlockCounts> first_;  // of block 0, when it ran to see how long it is
  std::map<std::array<uint32_t, 3>, BlockCounts> scouts_;
};

}  // namespace
}  // namespace ptx

KernelCounts count_kernel(const PtxModule& module, std::string_view name, const KernelLaunch& launch, const KnownValue& known) {
  KernelCounts out;
  const auto found = module.kernels.find(name);
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (found == module.kernels.end()) {
    out.limit = "the code has no kernel of this name";
  } else if (threads == 0 || launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) {
    out.limit = "an empty launch";
  } else if (launch.block[0] > 1024 || launch.block[1] > 1024 || threads > 1024) {
    out.limit = "a block of more than 1,024 threads";
  } else {
    return ptx::LaunchCounter(module, found->second, launch, known).count();
  }
  return out;
}

}  // namespace gpucast
