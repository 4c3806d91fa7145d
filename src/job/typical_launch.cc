// The kernels' figures come from traces of PyTorch's profiler: from a V100 (pytorch/kineto, tb_plugin/samples, 2021) for fp32 before
// Hopper, from an H200 (eval/truth/h200/steps.jsonl.gz) for fp32, TF32 and Hopper's kernels, from an H100 (AMD-AGI/TraceLens,
// tests/traces/h100) for products in fp16 and bf16 on Ampere. NCCL's kernels since 2.20 have 96 registers, at least 512 threads a block,
// and a block for each channel.

#include "src/job/typical_launch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "src/time/kinds.h"

namespace gpucast {
namespace {

struct TiledLaunch {
  double m, n;
  int threads, registers, shared_bytes;
  const char* like;
  double warps = 1;       // as in TypicalLaunch
  double persistent = 0;  // above 0: at most a block for this share of the multiprocessors, which computes several tiles
};
// Ordered from large to small tiles.
constexpr TiledLaunch kPlainUntilAmpere[] = {{128, 128, 256, 128, 32768, "volta_scudnn_128x128_relu_interior_nn_v1"},
                                             {128, 64, 128, 128, 16384, "volta_scudnn_128x64_relu_interior_nn_v1"},
                                             {64, 64, 64, 126, 8192, "volta_sgemm_64x64_nt"},
                                             {128, 32, 256, 57, 16384, "volta_sgemm_128x32_nt"},
                                             {64, 32, 256, 82, 26624, "volta_sgemm_64x32_sliced1x4_tn"}};
// cuBLAS's fp32 kernels on Volta, Ampere and Ada, with the figures of Ampere's (libcublasLt 12.4.5.8). A block's cost is its
// multiplications times `cost`, while all blocks that fit are on its multiprocessor. `alone`: the part of that time that one block alone
// needs. `begin`: the steps of k for which a block's begin and end last. The three are fitted to cuBLAS's choices:
// eval/occupancy/fit_tiles.py.
struct PlainKernel {
  TiledLaunch launch;
  double cost, alone, begin;
};
constexpr PlainKernel kPlainGemm[] = {{{128, 128, 256, 118, 16896, "ampere_sgemm_128x128_tn"}, 1.058, 0.433, 17},
                                      {{128, 64, 128, 122, 12800, "ampere_sgemm_128x64_tn"}, 1.000, 0.306, 9.9},
                                      {{128, 32, 256, 57, 16384, "ampere_sgemm_128x32_tn"}, 1.056, 0.309, 11.4},
                                      {{32, 128, 256, 57, 16384, "ampere_sgemm_32x128_tn"}, 1.056, 0.314, 11.3},
                                      {{64, 64, 64, 126, 8704, "ampere_sgemm_64x64_tn"}, 1.178, 0.366, 23.9},
                                      {{128, 32, 256, 134, 43008, "ampere_sgemm_128x32_sliced1x4_tn"}, 1.060, 0.479, 136},
                                      {{64, 32, 256, 82, 26624, "ampere_sgemm_64x32_sliced1x4_tn"}, 1.142, 0.384, 67.3},
                                      {{32, 32, 128, 86, 32768, "ampere_sgemm_32x32_sliced1x4_tn"}, 1.176, 0.428, 60.4}};
constexpr TiledLaunch kPlain[] = {{128, 128, 128, 255, 33792, "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3"},
                                  {128, 64, 128, 220, 18816, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x128x8_stage3"},
                                  {64, 64, 128, 121, 12672, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3"},
                                  {64, 32, 64, 121, 9600, "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x32x8_stage3"},
                                  {32, 32, 64, 80, 6912, "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3"}};
constexpr TiledLaunch kTensor[] = {{256, 128, 256, 230, 147456, "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2"},
                                   {256, 64, 128, 246, 81920, "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x5"},
                                   {128, 64, 128, 152, 147456, "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8"},
                                   {64, 64, 128, 100, 98304, "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8"},
                                   {32, 32, 128, 88, 33792, "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8"}};
// Rows that do not begin at multiples of 16 bytes.
constexpr TiledLaunch kUnalignedTensor[] = {{256, 128, 256, 229, 49152, "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1"},
                                            {128, 128, 128, 254, 32768, "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1"},
                                            {32, 32, 128, 51, 5120, "cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_nt"}};
constexpr TiledLaunch kTensorConvolution[] = {
    {128, 128, 128, 234, 65536, "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128"},
    {128, 64, 128, 242, 81920, "cutlass_tensorop_s1688dgrad_optimized_tf32_256x64_16x4_nhwc_align4"}};
constexpr TiledLaunch kTensorWeightGradient[] = {
    {128, 128, 128, 220, 77832, "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128"},
    {128, 64, 128, 164, 45064, "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64"}};
// Hopper's kernels: two warpgroups multiply, a third one moves tiles. In nvjet's, three of the third one's four warps end at once. In the
// gradients of weights Nsight Compute counts seven active warps of twelve.
constexpr TiledLaunch kHopper[] = {{256, 128, 384, 168, 213188, "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 0.75, 1}};
// Not each group of multiprocessors has room for one more cluster of blocks: 108 to 132 of 132 have one.
constexpr double kClusters = 120.0 / 132;
constexpr TiledLaunch kHopperConvolution[] = {
    {128, 128, 384, 168, 231424, "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32", 1, kClusters}};
constexpr TiledLaunch kHopperWeightGradient[] = {
    {128, 128, 384, 168, 231424, "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32", 0.6,
     kClusters}};
// cuDNN's gradients of convolutions in fp32 that are not computed as products of tiles.
constexpr TiledLaunch kDataGradient = {64, 64, 64, 96, 3328, "cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3>"};
constexpr TiledLaunch kWeightGradient = {128, 64, 64, 80, 2304, "wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3>"};
constexpr TiledLaunch kWeightGradientUntilAmpere = {128, 64, 256, 80, 6400, "cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5>"};

// Depthwise convolutions in channels-last layout, which have no tiles of a product.
constexpr TiledLaunch kDepthwise = {128, 1, 128, 255, 0, "conv2d_c1_k1_nhwc_specialized"};
constexpr TiledLaunch kDepthwiseData = {64, 1, 256, 125, 0, "dgrad2d_c1_k1_nhwc_specialized"};
constexpr TiledLaunch kDepthwiseWeights = {64, 1, 128, 167, 35328, "wgrad2d_c1_k1_nhwc"};

// The first row whose tile is not larger than m x n. Only the area is compared, because a tile may also be turned.
const TiledLaunch& like_tile(std::span<const TiledLaunch> rows, double m, double n) {
  const double area = m * n;
  for (const TiledLaunch& row : rows)
    if (row.m * row.n <= area) return row;
  return rows.back();
}

TypicalLaunch of_tiles(const TiledLaunch& row, double tiles, const OccupancyCard& card) {
  TypicalLaunch out;
  if (row.persistent > 0) tiles = std::min(tiles, std::floor(row.persistent * card.multiprocessors));
  out.launch.blocks = static_cast<int64_t>(std::max(1.0, std::min(tiles, 1e15)));
  out.launch.block_threads = row.threads;
  out.kernel.registers = row.registers;
  out.launch.dynamic_shared_bytes = row.shared_bytes;
  // On cards with less shared memory for a block, the same kernel with fewer stages.
  while (out.launch.dynamic_shared_bytes > card.block_shared_bytes) out.launch.dynamic_shared_bytes /= 2;
  out.like = row.like;
  out.warps = row.warps;
  return out;
}

// cuBLAS's fp32 kernels on Hopper, by the grids measured on an H200. Gradients of weights (A transposed) mostly have tiles of 64 x 64.
// A linear layer's forward (B transposed) has the largest tile that gives most multiprocessors one.
TypicalLaunch of_plain_gemm(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  constexpr double kMost = 0.7;
  const GemmShape& s = operation.gemm;
  const auto tiles_of = [&](const TiledLaunch& row) {
    return static_cast<double>(s.batch) * std::ceil(static_cast<double>(s.m) / row.m) * std::ceil(static_cast<double>(s.n) / row.n);
  };
  const TiledLaunch &wide = kPlain[1], &square = kPlain[2], &small = kPlain[4];
  const double least = kMost * card.multiprocessors;
  if (s.a_transposed && tiles_of(square) >= least) return of_tiles(square, tiles_of(square), card);
  if (s.a_transposed || s.b_transposed) {
    for (const TiledLaunch* row : {&wide, &square})
      if (tiles_of(*row) >= least) return of_tiles(*row, tiles_of(*row), card);
    return of_tiles(small, tiles_of(small), card);
  }
  const GemmTiling tiling = gemm_tiling(operation, rates);
  return of_tiles(like_tile(kPlain, tiling.tile_m, tiling.tile_n), tiling.tiles, card);
}

// cuBLAS's fp32 kernels on Volta, Ampere and Ada. Several blocks share a multiprocessor; each block of the last wave has more of it. In
// batches of products all kernels are the largest.
TypicalLaunch of_plain_gemm_until_ada(const Operation& operation, const OccupancyCard& card) {
  constexpr double kSmallGrid = 1.25, kLeastSplit = 256, kSplitByTiles = 1200, kLeastPart = 64, kBlocksOfMultiprocessor = 2;
  constexpr double kLongSum = 1000, kFewWaves = 1.7, kWavesOfParts = 2.5, kMostParts = 10;
  const GemmShape& s = operation.gemm;
  // cuBLAS's matrices have columns where ours have rows.
  const double m = static_cast<double>(s.n), n = static_cast<double>(s.m), k = static_cast<double>(s.k);
  const auto tiles_of = [&](const TiledLaunch& row) { return std::ceil(m / row.m) * std::ceil(n / row.n); };
  if (s.batch > 1) return of_tiles(kPlainGemm[0].launch, static_cast<double>(s.batch) * tiles_of(kPlainGemm[0].launch), card);
  // Few tiles and a long sum: the sum is cut into parts.
  const TiledLaunch& small = std::end(kPlainGemm)[-1].launch;
  const double waves = tiles_of(small) / card.multiprocessors;
  if (waves < kSmallGrid && k >= std::max(kLeastSplit, kSplitByTiles * waves)) {
    const double parts = std::min(k / kLeastPart, kBlocksOfMultiprocessor * card.multiprocessors / tiles_of(small));
    return of_tiles(small, tiles_of(small) * std::max(1.0, std::floor(parts)), card);
  }
  // In a gradient of weights both matrices are read along their rows, and the smallest tiles need half of the memory.
  constexpr int kSmallestOfWeights = 16384;
  TiledLaunch best;
  double best_cost = std::numeric_limits<double>::infinity(), best_waves = 0;
  for (const PlainKernel& kernel : kPlainGemm) {
    TiledLaunch row = kernel.launch;
    if (s.a_transposed && !s.b_transposed && row.m == small.m && row.n == small.n) row.shared_bytes = kSmallestOfWeights;
    KernelResources resources;
    resources.registers = row.registers;
    const double resident = std::max(1, blocks_per_multiprocessor(card, resources, row.threads, row.shared_bytes).blocks);
    const double blocks = std::ceil(tiles_of(row) / card.multiprocessors), last = std::fmod(blocks, resident);
    const double at_once = blocks - last + (last > 0 ? std::max(last, kernel.alone * resident) : 0);
    const double cost = at_once * kernel.cost * row.m * row.n * (k + kernel.begin);
    if (cost >= best_cost) continue;
    best = row;
    best_cost = cost;
    best_waves = tiles_of(row) / (resident * card.multiprocessors);
  }
  // A linear layer's forward adds the bias, and has little memory for parts of sums.
  double parts = 1;
  if (!s.b_transposed && k >= kLongSum && best_waves < kFewWaves)
    parts = std::clamp(std::round(kWavesOfParts / best_waves), 1.0, std::min(kMostParts, k / kLeastPart));
  return of_tiles(best, tiles_of(best) * parts, card);
}

TypicalLaunch of_gemm(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  const bool tensor = rates.tensor_cores[operation.precision] && rates.capability >= 80;
  if (!tensor && rates.capability >= 90) return of_plain_gemm(operation, rates, card);
  if (!tensor && rates.capability >= 70 && rates.capability != 75) return of_plain_gemm_until_ada(operation, card);
  const GemmTiling tiling = gemm_tiling(operation, rates);
  std::span<const TiledLaunch> rows = kPlainUntilAmpere;
  if (tensor) {
    const bool aligned = elements_read_together(operation) * operation.element_bytes >= 16;
    rows = !aligned ? kUnalignedTensor : rates.capability == 90 ? std::span<const TiledLaunch>(kHopper) : kTensor;
  }
  return of_tiles(like_tile(rows, tiling.tile_m, tiling.tile_n), tiling.tiles, card);
}

// Turns a tensor between channels-first and channels-last layout, or pads it: a block for each 32 x 32 elements.
TypicalLaunch of_turning(const Operation& operation, double time_share) {
  constexpr int64_t kElements = 1024, kTensors = 2;  // half of what the convolution reads and writes, on average
  TypicalLaunch out;
  out.launch.blocks =
      std::max<int64_t>(1, (operation.bytes_read + operation.bytes_written) / kTensors / std::max(1, operation.element_bytes) / kElements);
  out.launch.block_threads = 256;
  out.kernel.registers = 32;
  out.launch.dynamic_shared_bytes = 4224;
  out.like = "cudnn::engines_precompiled::nchwToNhwcKernel";
  out.warps = 0.9;  // Nsight Compute's occupancy of large grids on an H200 (eval/truth/h200/occupancy.csv.gz), over SM active
  out.time_share = time_share;
  return out;
}

const TiledLaunch& convolution_row(const ConvolutionShape& s, bool tensor, double width, const CardRates& rates) {
  const bool weights = s.pass == Pass::weight_gradient;
  if (s.groups > 1 && s.groups == s.in_channels && s.by_library)
    return weights ? kDepthwiseWeights : s.pass == Pass::data_gradient ? kDepthwiseData : kDepthwise;
  if (tensor && rates.capability >= 80) {
    if (rates.capability == 90) return weights ? kHopperWeightGradient[0] : kHopperConvolution[0];
    return like_tile(weights ? kTensorWeightGradient : kTensorConvolution, 128, width);
  }
  if (s.pass == Pass::data_gradient) return kDataGradient;
  if (weights) return rates.capability >= 90 ? kWeightGradient : kWeightGradientUntilAmpere;
  return like_tile(rates.capability >= 90 ? kPlain : kPlainUntilAmpere, 128, width);
}

std::vector<TypicalLaunch> of_one_pass(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  const ConvolutionShape& s = operation.convolution;
  const auto product = [](const int64_t sizes[3]) {
    return static_cast<double>(sizes[0]) * static_cast<double>(sizes[1]) * static_cast<double>(sizes[2]);
  };
  const auto groups = static_cast<double>(std::max<int64_t>(1, s.groups)), batch = static_cast<double>(s.batch);
  const double in_channels = static_cast<double>(s.in_channels) / groups, out_channels = static_cast<double>(s.out_channels) / groups;
  // The convolution as a product of matrices.
  double m = batch * product(s.out), n = out_channels;
  if (s.pass == Pass::data_gradient) m = batch * product(s.in), n = in_channels;
  if (s.pass == Pass::weight_gradient) m = out_channels, n = in_channels * product(s.window);
  constexpr double kPartsWithoutTensorCores = 64;  // of a sum, for each multiprocessor: measured grids have 10,000 blocks and more
  const ConvolutionKernels kernels = convolution_kernels(operation, rates);
  // Images of few channels have no tensor core kernel: cuDNN computes in fp32.
  const bool tensor = rates.tensor_cores[kernels.precision] && in_channels > 2;
  const double width = n >= 128 ? 128 : n >= 64 ? 64 : 32;
  const TiledLaunch& row = convolution_row(s, tensor, width, rates);
  double tiles = groups * std::ceil(m / row.m) * std::ceil(n / std::min(row.n, width));
  // A weight's gradient sums over many pixels. The library cuts the sum so that all multiprocessors have work.
  if (s.pass == Pass::weight_gradient) tiles = std::max(tiles, (tensor ? 1.0 : kPartsWithoutTensorCores) * rates.multiprocessors);
  std::vector<TypicalLaunch> out = {of_tiles(row, tiles, card)};
  // Windows of one element are products of whole tensors in any layout.
  const bool pointwise = product(s.window) == 1 && product(s.stride) == 1 && groups == 1;
  if (tensor && !pointwise && kernels.turned_share > 0) {
    out.front().time_share = 1 - kernels.turned_share;
    out.push_back(of_turning(operation, kernels.turned_share));
  }
  return out;
}

std::vector<TypicalLaunch> of_convolution(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  if (operation.convolution.pass != Pass::backward) return of_one_pass(operation, rates, card);
  std::vector<TypicalLaunch> out;
  const double whole_ns = convolution_time(operation, rates).ns;
  for (const Pass pass : {Pass::data_gradient, Pass::weight_gradient}) {
    Operation part = operation;
    part.convolution.pass = pass;
    const double share = whole_ns > 0 ? convolution_time(part, rates).ns / whole_ns : 0.5;
    for (TypicalLaunch& launch : of_one_pass(part, rates, card)) {
      launch.time_share *= share;
      out.push_back(launch);
    }
  }
  return out;
}

// cuDNN's batch norm: a block for each channel; blocks that stay on their multiprocessor for tensors of two-byte elements.
TypicalLaunch of_normalization(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  const bool forward = operation.pass == Pass::forward;
  TypicalLaunch out;
  out.launch.block_threads = 512;
  if (operation.element_bytes == 2) {
    out.launch.blocks = 2LL * card.multiprocessors;
    out.kernel.registers = 64;
    out.launch.dynamic_shared_bytes = forward ? 32768 : 28672;
    out.like = forward ? "cudnn::batchnorm_fwtr_nhwc_semiPersist" : "cudnn::batchnorm_bwtr_nhwc_semiPersist";
    return out;
  }
  out.launch.blocks = std::max<int64_t>(1, operation.rows);
  // A block that keeps its channel's elements reads them once, and needs shared memory for them.
  const NormalizationConstants& c = rates.normalization[operation.precision];
  if (static_cast<double>(operation.columns) <= (forward ? c.kept_elements : c.kept_backward_elements)) {
    out.kernel.registers = 48;
    out.launch.dynamic_shared_bytes = forward ? 26768 : 53520;
    out.like = forward ? "cudnn::bn_fw_tr_1C11_singleread" : "cudnn::bn_bw_1C11_singleread";
    return out;
  }
  out.kernel.registers = forward ? 48 : 32;
  out.launch.dynamic_shared_bytes = forward ? 144 : 400;
  out.like = forward ? "cudnn::bn_fw_tr_1C11_kernel_NCHW" : "cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512>";
  return out;
}

TypicalLaunch of_attention(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  constexpr int64_t kQueries = 128;  // in a block
  const AttentionShape& s = operation.attention;
  const int64_t blocks = std::max<int64_t>(1, s.batch * s.heads * ((s.queries + kQueries - 1) / kQueries));
  if (s.kernel == AttentionKernel::cudnn && rates.capability == 90) {
    constexpr TiledLaunch kFlash = {128, 128, 384, 168, 216064, "cudnn_generated_fort_native_sdpa_sm90_flash_bprop", 1, 1};
    return of_tiles(kFlash, static_cast<double>(blocks), card);
  }
  TypicalLaunch out;
  out.launch.blocks = blocks;
  out.launch.block_threads = 128;
  out.kernel.registers = 255;
  out.launch.dynamic_shared_bytes = 48 << 10;
  out.like = "a fused attention kernel of 128 queries a block";
  return out;
}

TypicalLaunch of_collective() {
  constexpr int64_t kChannels = 16;
  TypicalLaunch out;
  out.launch.blocks = kChannels;
  out.launch.block_threads = 512;
  out.kernel.registers = 96;
  out.like = "ncclDevKernel_AllReduce";
  return out;
}

TypicalLaunch of_recurrent(const CardRates& rates) {
  TypicalLaunch out;
  out.launch.blocks = rates.multiprocessors;
  out.launch.block_threads = 256;
  out.kernel.registers = 128;
  out.like = "a persistent kernel, a block a multiprocessor";
  return out;
}

}  // namespace

std::vector<TypicalLaunch> typical_launches(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  switch (operation.kind) {
    case OperationKind::gemm:
      return {of_gemm(operation, rates, card)};
    case OperationKind::convolution:
      return of_convolution(operation, rates, card);
    case OperationKind::normalization:
      return {of_normalization(operation, rates, card)};
    case OperationKind::attention:
      return {of_attention(operation, rates, card)};
    case OperationKind::collective:
      return {of_collective()};
    case OperationKind::recurrent:
      return {of_recurrent(rates)};
    default:
      return {};
  }
}

}  // namespace gpucast
