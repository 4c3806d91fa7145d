// The kernels' figures come from traces of PyTorch's profiler: from a V100 (pytorch/kineto, tb_plugin/samples, 2021) for arithmetic in
// fp32, from an H100 (AMD-AGI/TraceLens, tests/traces/h100) for tensor cores. NCCL's kernels since 2.20 have 96 registers, at least 512
// threads a block, and a block for each channel.

#include "src/job/typical_launch.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "src/time/kinds.h"

namespace gpucast {
namespace {

struct TiledLaunch {
  double m, n;
  int threads, registers, shared_bytes;
  const char* like;
};
constexpr TiledLaunch kPlainLaunch[] = {{128, 128, 256, 128, 32768, "volta_scudnn_128x128_relu_interior_nn_v1"},
                                        {128, 64, 128, 128, 16384, "volta_scudnn_128x64_relu_interior_nn_v1"},
                                        {64, 64, 64, 126, 8192, "volta_sgemm_64x64_nt"},
                                        {128, 32, 256, 57, 16384, "volta_sgemm_128x32_nt"},
                                        {64, 32, 256, 82, 26624, "volta_sgemm_64x32_sliced1x4_tn"}};
constexpr TiledLaunch kTensor[] = {{256, 128, 256, 230, 147456, "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2"},
                                   {256, 64, 128, 246, 81920, "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x5"},
                                   {128, 64, 128, 152, 147456, "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8"},
                                   {64, 64, 128, 100, 98304, "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8"},
                                   {32, 32, 128, 88, 33792, "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8"}};
constexpr TiledLaunch kHopper[] = {{256, 128, 384, 168, 231424, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"}};
// cuDNN's gradients of convolutions in fp32 that are not computed as products of tiles.
constexpr TiledLaunch kDataGradient = {64, 64, 64, 88, 3328, "cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3>"};
constexpr TiledLaunch kWeightGradient = {128, 64, 256, 80, 6400, "cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5>"};

// The first row whose tile is not larger than m x n. Only the area is compared, because a tile may also be turned.
const TiledLaunch& like_tile(std::span<const TiledLaunch> rows, double m, double n) {
  const double area = m * n;
  for (const TiledLaunch& row : rows)
    if (row.m * row.n <= area) return row;
  return rows.back();
}

std::span<const TiledLaunch> rows_of(bool tensor, const CardRates& rates) {
  if (!tensor || rates.capability < 80) return kPlainLaunch;
  return rates.capability == 90 ? std::span<const TiledLaunch>(kHopper) : std::span<const TiledLaunch>(kTensor);
}

TypicalLaunch of_tiles(const TiledLaunch& row, double tiles, const OccupancyCard& card) {
  TypicalLaunch out;
  out.launch.blocks = static_cast<int64_t>(std::max(1.0, std::min(tiles, 1e15)));
  out.launch.block_threads = row.threads;
  out.kernel.registers = row.registers;
  out.launch.dynamic_shared_bytes = row.shared_bytes;
  // On cards with less shared memory for a block, the same kernel with fewer stages.
  while (out.launch.dynamic_shared_bytes > card.block_shared_bytes) out.launch.dynamic_shared_bytes /= 2;
  out.like = row.like;
  return out;
}

TypicalLaunch of_gemm(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  const GemmTiling tiling = gemm_tiling(operation, rates);
  const bool tensor = rates.tensor_cores[operation.precision];
  return of_tiles(like_tile(rows_of(tensor, rates), tiling.tile_m, tiling.tile_n), tiling.tiles, card);
}

TypicalLaunch of_convolution(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
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
  const bool tensor = rates.tensor_cores[operation.precision];
  const double width = n >= 128 ? 128 : n >= 64 ? 64 : 32;
  const TiledLaunch* row = &like_tile(rows_of(tensor, rates), 128, width);
  if (!tensor && s.pass == Pass::data_gradient) row = &kDataGradient;
  if (!tensor && s.pass == Pass::weight_gradient) row = &kWeightGradient;
  double tiles = groups * std::ceil(m / row->m) * std::ceil(n / std::min(row->n, width));
  // A weight's gradient sums over many pixels. The library cuts the sum so that all multiprocessors have work.
  if (s.pass == Pass::weight_gradient) tiles = std::max(tiles, static_cast<double>(rates.multiprocessors));
  return of_tiles(*row, tiles, card);
}

TypicalLaunch of_normalization(const Operation& operation) {
  TypicalLaunch out;
  out.launch.blocks = std::max<int64_t>(1, operation.rows);
  out.launch.block_threads = 512;
  out.kernel.registers = 32;
  out.launch.dynamic_shared_bytes = 400;
  out.like = "cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512>";
  return out;
}

TypicalLaunch of_attention(const Operation& operation) {
  constexpr int64_t kQueries = 128;  // in a block
  const AttentionShape& s = operation.attention;
  TypicalLaunch out;
  out.launch.blocks = std::max<int64_t>(1, s.batch * s.heads * ((s.queries + kQueries - 1) / kQueries));
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

std::optional<TypicalLaunch> typical_launch(const Operation& operation, const CardRates& rates, const OccupancyCard& card) {
  switch (operation.kind) {
    case OperationKind::gemm:
      return of_gemm(operation, rates, card);
    case OperationKind::convolution:
      return of_convolution(operation, rates, card);
    case OperationKind::normalization:
      return of_normalization(operation);
    case OperationKind::attention:
      return of_attention(operation);
    case OperationKind::collective:
      return of_collective();
    case OperationKind::recurrent:
      return of_recurrent(rates);
    default:
      return std::nullopt;
  }
}

}  // namespace gpucast
