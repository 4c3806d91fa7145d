// A launch from some of its warps: all of a small launch; of a larger one the blocks at the edges of the grid, and some between them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/kernels/kernel_counts.h"
#include "src/kernels/warp.h"

namespace gpucast {
namespace ptx {
namespace {

constexpr uint64_t kFewBlocks = 8, kMostBlocks = 24;
constexpr uint32_t kAllWarps = 16, kSomeWarps = 8;  // of a block; with more warps than kAllWarps some are run
// A launch of so few blocks and instructions runs whole: blocks of a kernel for a list of tensors are not alike.
constexpr uint64_t kShortGrid = 256, kShortLaunch = 50'000;
constexpr double kSharesNothing = 1.01, kBeyondExtent = 1.25;
constexpr uint64_t kMostStepsOfLaunch = 12'000'000;

struct SampledBlock {
  std::array<uint32_t, 3> at = {};
  double weight = 1;
};

struct Piece {  // of an axis
  uint32_t begin = 0, end = 0;
};

// The first, the last and what lies between; the samples of a long middle are spread evenly.
std::vector<Piece> pieces_of(uint32_t size, uint32_t samples) {
  std::vector<Piece> out;
  if (size <= samples + 2) {
    for (uint32_t i = 0; i < size; ++i) out.push_back({i, i + 1});
    return out;
  }
  out.push_back({0, 1});
  for (uint32_t s = 0; s < samples; ++s) {
    out.push_back(
        {1 + static_cast<uint32_t>(uint64_t{size - 2} * s / samples), 1 + static_cast<uint32_t>(uint64_t{size - 2} * (s + 1) / samples)});
  }
  out.push_back({size - 1, size});
  return out;
}

std::vector<SampledBlock> sample_blocks(const std::array<uint32_t, 3>& grid, bool whole) {
  std::array<std::vector<Piece>, 3> pieces;
  std::array<uint32_t, 3> samples = {6, 1, 1};
  if (grid[0] > 1 && grid[1] > 1) samples = {3, 1, 1};
  if (whole) samples = grid;
  for (size_t a = 0; a < 3; ++a) pieces[a] = pieces_of(grid[a], samples[a]);
  // With three long axes the corners are too many: the last axis is then one piece.
  if (!whole && pieces[0].size() * pieces[1].size() * pieces[2].size() > kMostBlocks) pieces[2] = {{0, grid[2]}};
  std::vector<SampledBlock> out;
  for (const Piece& z : pieces[2]) {
    for (const Piece& y : pieces[1]) {
      for (const Piece& x : pieces[0]) {
        const auto middle = [](const Piece& p) { return p.begin + (p.end - p.begin - 1) / 2; };
        out.push_back({{middle(x), middle(y), middle(z)}, double(x.end - x.begin) * double(y.end - y.begin) * double(z.end - z.begin)});
      }
    }
  }
  return out;
}

std::vector<uint32_t> sample_warps(uint32_t warps) {
  std::vector<uint32_t> out(std::min(warps, warps <= kAllWarps ? kAllWarps : kSomeWarps));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = out.size() == warps ? static_cast<uint32_t>(i) : static_cast<uint32_t>(i * (warps - 1) / (out.size() - 1));
  }
  return out;
}

void add_warp(const WarpCounts& warp, double weight, KernelCounts* out) {
  out->load_sectors += weight * warp.load_sectors;
  out->store_sectors += weight * warp.store_sectors;
  out->atomic_sectors += weight * warp.atomic_sectors;
  out->async_load_bytes += weight * (warp.async_load + warp.expected);
  out->async_store_bytes += weight * warp.async_store;
  out->shared_wavefronts += weight * warp.wavefronts;
  for (size_t p = 0; p < kPrecisionCount; ++p) out->tensor_flops[p] += weight * warp.tensor[p];
  const auto work = [&](Work w) { return weight * warp.works[static_cast<size_t>(w)]; };
  out->fp32 += work(Work::fp32);
  out->fp16 += work(Work::fp16);
  out->fp64 += work(Work::fp64);
  out->integer += work(Work::integer);
  out->special += work(Work::special);
  out->control += work(Work::control);
  out->memory += work(Work::memory);
  out->flops += weight * warp.flops;
  out->barriers += weight * warp.barriers;
  out->loads_in_flight = std::max(out->loads_in_flight, warp.in_flight);
  out->assumed_values = out->assumed_values || warp.assumed;
}

constexpr std::array kChainParts = {&WarpChain::cycles, &WarpChain::load_cycles, &WarpChain::loads, &WarpChain::shared_waits};

void add_longest(const WarpChain& chain, WarpChain* out) {
  for (const auto part : kChainParts) out->*part = std::max(out->*part, chain.*part);
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
    uint64_t value = 0;
    for (size_t b = 0; b < 8; ++b) value |= static_cast<uint64_t>(static_cast<unsigned char>(parameters[at + b])) << (8 * b);
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
      : kernel_(kernel), launch_(launch), warp_(module, kernel, launch, known) {}

  KernelCounts count() {
    const uint64_t threads = uint64_t{launch_.block[0]} * launch_.block[1] * launch_.block[2];
    const uint64_t blocks = uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2];
    warps_ = static_cast<uint32_t>((threads + kLanes - 1) / kLanes);
    out_.blocks = static_cast<double>(blocks);
    out_.warps = static_cast<double>(blocks) * warps_;
    bool whole = blocks <= kFewBlocks;
    if (!whole && blocks <= kShortGrid) {
      run({{0, 0, 0}, 0});
      whole = std::exchange(steps_, 0) * blocks <= kShortLaunch;
      loads_.clear();
      stores_.clear();
    }
    const std::vector<SampledBlock> samples = sample_blocks(launch_.grid, whole);
    double done = 0;
    for (const SampledBlock& sample : samples) {
      if (steps_ > kMostStepsOfLaunch) {
        out_.limit = "a launch's most steps";
        break;
      }
      if (!out_.limit.empty()) break;  // a warp does not end, and the others would not either
      run(sample);
      done += sample.weight;
    }
    if (done > 0 && done < out_.blocks) scale(out_.blocks / done);
    for (const auto part : kChainParts) out_.mean.*part /= std::max(done, 1.0);
    const bool all = samples.size() == blocks && warps_ <= kAllWarps;
    out_.unique_load_bytes = launch_bytes(loads_, out_.block_load_bytes, all, launch_.parameters);
    out_.unique_store_bytes = launch_bytes(stores_, out_.block_store_bytes, all, launch_.parameters);
    for (size_t m = 1; m < warp_.met.size(); ++m) {
      if (warp_.met[m] != 0) out_.not_understood.push_back(kernel_.messages[m - 1]);
    }
    return std::move(out_);
  }

 private:
  void run(const SampledBlock& sample) {
    const std::vector<uint32_t> warps = sample_warps(warps_);
    std::vector<ByteSet> loads, stores;
    WarpChain longest;
    for (const uint32_t w : warps) {
      WarpCounts counts = warp_.run(sample.at, w);
      steps_ += counts.steps;
      if (counts.cut_off) out_.limit = "a warp's most steps";
      add_warp(counts, sample.weight * warps_ / static_cast<double>(warps.size()), &out_);
      add_longest(counts.chain, &longest);
      loads.push_back(union_of(std::move(counts.loads)));
      stores.push_back(union_of(std::move(counts.stores)));
    }
    add_longest(longest, &out_.longest);
    for (const auto part : kChainParts) out_.mean.*part += sample.weight * (longest.*part);
    for (auto [sets, bytes, kept] : {std::tuple{&loads, &out_.block_load_bytes, &loads_}, {&stores, &out_.block_store_bytes, &stores_}}) {
      ByteSet together = union_of(*sets);
      *bytes += sample.weight * block_bytes(*sets, together, warps_);
      kept->push_back(std::move(together));
    }
  }
  void scale(double by) {
    for (double* value : {&out_.load_sectors, &out_.store_sectors, &out_.atomic_sectors, &out_.async_load_bytes, &out_.async_store_bytes,
                          &out_.block_load_bytes, &out_.block_store_bytes, &out_.shared_wavefronts, &out_.fp32, &out_.fp16, &out_.fp64,
                          &out_.integer, &out_.special, &out_.control, &out_.memory, &out_.flops, &out_.barriers}) {
      *value *= by;
    }
    for (double& value : out_.tensor_flops) value *= by;
  }

  const Kernel& kernel_;
  const KernelLaunch& launch_;
  Warp warp_;
  uint32_t warps_ = 0;
  uint64_t steps_ = 0;
  KernelCounts out_;
  std::vector<ByteSet> loads_, stores_;
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
