// A convolution is computed as a matrix product that is never written to memory (implicit GEMM). Each pass is another product, cut into
// tiles as any product. For windows of 3x3 the library uses Winograd's algorithm where it is faster: fewer multiplications, more bytes.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "src/time/kinds.h"
#include "src/time/round_up.h"

namespace gpucast {
namespace {

struct ConvolutionTile {
  double m, n, narrowness;  // 0: the widest
};
constexpr ConvolutionTile kTiles[] = {{128, 128, 0}, {128, 64, 0.5}, {128, 32, 1}, {128, 8, 2}, {128, 2, 2}};
constexpr ConvolutionTile kTensorConvolutionTiles[] = {{256, 128, 0}, {128, 128, 0.25}, {128, 64, 0.5}, {64, 64, 0.75}, {64, 32, 1}};
constexpr ConvolutionTile kWinogradTiles[] = {{128, 128, 0}, {128, 64, 0.5}, {64, 64, 0.7}, {128, 32, 1}};

struct Product {
  double batch = 1, m = 0, n = 0, k = 0;
};

struct Tiled {
  double ns = std::numeric_limits<double>::infinity();
  bool tail = false;
};

// The time with the fastest tile. `split`: k may be cut into parts; a second pass adds their results.
template <size_t count>
Tiled tiled_ns(const Product& product, const ConvolutionTile (&tiles)[count], double rate, double narrow, double k_overhead,
               double least_waves, double k_step, bool split, const CardRates& card) {
  Tiled best;
  for (const ConvolutionTile& tile : tiles) {
    const double cut = product.batch * std::min(std::ceil(product.m / tile.m) * std::ceil(product.n / tile.n),
                                                std::ceil(product.m / tile.n) * std::ceil(product.n / tile.m));
    const double least = least_waves * (1 + tile.narrowness / 2);
    for (int power = 0; power <= (split ? 6 : 0); ++power) {
      const double parts = 1 << power;
      const double waves = std::max(std::ceil(cut * parts / card.multiprocessors), least);
      const double k = round_up(std::ceil(product.k / parts), k_step) + k_overhead;
      double ns = waves * 1e9 * 2 * tile.m * tile.n * k * card.multiprocessors / (rate * std::pow(narrow, tile.narrowness));
      if (parts > 1) ns += 1e9 * product.batch * product.m * product.n * 2 * (parts + 1) / card.dram_bytes_per_s;
      if (ns < best.ns) best = {ns, waves > card.convolution_tail_waves * cut * parts / card.multiprocessors};
    }
  }
  return best;
}

double volume(const int64_t (&size)[3]) {
  return static_cast<double>(size[0]) * static_cast<double>(size[1]) * static_cast<double>(size[2]);
}

// A transposed convolution's forward is a convolution's data gradient, and its data gradient is a convolution's forward.
ConvolutionShape plain(ConvolutionShape shape) {
  if (!shape.transposed) return shape;
  std::swap(shape.in_channels, shape.out_channels);
  std::swap(shape.in, shape.out);
  if (shape.pass == Pass::forward)
    shape.pass = Pass::data_gradient;
  else if (shape.pass == Pass::data_gradient)
    shape.pass = Pass::forward;
  return shape;
}

// The time of a grouped convolution whose products alone would need `ns`. Some cuDNN releases have no tensor core kernels for groups in
// channels-last layout: in cuDNN 8.3 groups run on the fp32 cores, except narrow ones. Its data gradient with a stride also visits
// positions that no output used, and computes few groups at a time.
double grouped_ns(double ns, const ConvolutionShape& s, bool strided, double flops, const ConvolutionConstants& c, const CardRates& card) {
  const GroupedConstants& g = card.grouped;
  const auto groups = static_cast<double>(s.groups);
  const int64_t channels_of_group = s.in_channels / s.groups;
  const auto channels = static_cast<double>(channels_of_group);
  if (!s.channels_last) return channels >= g.least_turned ? ns * c.grouped_turned : ns;
  const bool narrow = channels <= (!strided && groups > g.few_groups ? g.narrow_of_many : g.narrow);
  if (narrow && (!strided || static_cast<double>(s.in_channels) >= g.many_channels)) return ns;
  const double one_by_one = narrow ? std::max(1.0, g.at_once / std::max(g.few_groups, groups)) : 1;
  // Products of few channels fill only a part of a tile, and few groups fill only a part of the card.
  const double filled = narrow ? g.filled_narrow
                               : std::min(1.0, static_cast<double>(std::max(s.in_channels, s.out_channels)) / groups / g.tile) *
                                     std::pow(std::min(1.0, groups / g.many_groups), g.groups_power);
  const double rate = card.peak_flop_per_s[Precision::fp32] * c.grouped * filled;
  return std::max(ns, 1e9 * flops / rate * (strided ? c.grouped_strided * one_by_one : 1));
}

// The time of Winograd's algorithm without tensor cores, for a window of 3x3, one group and a stride of 1: the faster of two
// implementations. `bytes` is the size of the tensors, `memory_ns` the time to move them, `rate` the products' sustained rate.
double winograd_ns(const ConvolutionShape& s, double bytes, double memory_ns, double rate, const ConvolutionConstants& c,
                   const CardRates& card) {
  const bool gradient = s.pass == Pass::data_gradient, split = s.pass == Pass::weight_gradient;
  const auto batch = static_cast<double>(s.batch);
  const auto in_channels = static_cast<double>(s.in_channels), out_channels = static_cast<double>(s.out_channels);
  const double from = gradient ? out_channels : in_channels, to = gradient ? in_channels : out_channels;
  const int64_t* made = gradient ? s.in : s.out;
  const bool high_first = s.window[0] == 3;
  const double high = static_cast<double>(high_first ? made[0] : made[1]), wide = static_cast<double>(high_first ? made[1] : made[2]);
  // Several kernels: for a block of 4x4 outputs 36 multiplications instead of 144, between kernels that transform tensors and weights.
  const double blocks = batch * std::ceil(high / 4) * std::ceil(wide / 4);
  const Product blocks_product = split ? Product{36, to, from, blocks} : Product{36, blocks, to, from};
  const double transformed_bytes = 2.0 * 36 * 4 * (blocks * (from + to) + from * to);
  const Tiled products =
      tiled_ns(blocks_product, kWinogradTiles, rate * c.winograd, c.narrow, c.winograd_k_overhead, c.winograd_waves, 8, split, card);
  const double apart_ns = products.ns + 1e9 * (bytes + transformed_bytes) / card.dram_bytes_per_s + 3 * c.start_ns;
  if (split) return apart_ns;
  // One kernel: a block of threads computes 32 channels of 32 blocks of 2x2 outputs, from two images or from a wide part of one.
  const double rows2 = std::ceil(high / 2), columns2 = std::ceil(wide / 2);
  const double cut = std::ceil(to / 32) * std::min(std::ceil(batch / 2) * std::ceil(rows2 / 4) * std::ceil(columns2 / 4),
                                                   batch * std::ceil(rows2 / 4) * std::ceil(columns2 / 8));
  const double waves = std::max(std::ceil(cut / card.multiprocessors), c.winograd_waves);
  const double fused_ns =
      waves * 1e9 * 2 * 16 * 32 * 32 * (round_up(from, 8) + c.winograd_k_overhead) * card.multiprocessors / (rate * c.winograd_fused);
  const double one_ns = std::max(fused_ns, memory_ns) + c.start_ns + 1e9 * 2 * 16 * 4 * from * to / card.dram_bytes_per_s;
  return std::min(apart_ns, one_ns);
}

struct ConvolutionTime {
  Estimate all;
  double turned_ns = 0;  // of kernels that change the layout or pad
};

ConvolutionTime in_precision(const Operation& operation, Precision precision, const CardRates& card) {
  const ConvolutionShape s = plain(operation.convolution);
  const Pass pass = s.pass;
  const ConvolutionConstants& c = card.convolution[precision][pass];
  const bool tensor = card.tensor_cores[precision];
  const auto batch = static_cast<double>(s.batch), groups = static_cast<double>(std::max<int64_t>(1, s.groups));
  const double element = operation.element_bytes;
  // Tensor cores work on eight channels at a time: other numbers of channels are padded.
  const double in_channels = static_cast<double>(s.in_channels) / groups, out_channels = static_cast<double>(s.out_channels) / groups;
  const double x_channels = tensor ? round_up(in_channels, 8) : in_channels, y_channels = tensor ? round_up(out_channels, 8) : out_channels;
  const double in = volume(s.in), out = volume(s.out), window = volume(s.window);
  const double x_bytes = batch * groups * in_channels * in * element, y_bytes = batch * groups * out_channels * out * element,
               w_bytes = groups * in_channels * out_channels * window * element;
  double phases = 1, positions = 1;  // data gradient with a stride: all positions that use the same part of the window are one product
  bool stride_1 = true;
  for (int i = 0; i < 3; ++i) {
    const auto stride = static_cast<double>(std::max<int64_t>(1, s.stride[i]));
    phases *= std::min(stride, static_cast<double>(s.window[i]));
    positions *= std::max(std::ceil(static_cast<double>(s.in[i]) / stride), stride > 1 ? static_cast<double>(s.out[i]) : 0);
    stride_1 = stride_1 && stride == 1;
  }
  const bool gradient = pass == Pass::data_gradient, strided = gradient && !stride_1;
  const double bytes = x_bytes * (strided ? 1 + c.strided_writes : 1) + y_bytes + w_bytes;
  double memory_ns = moving_ns(bytes, 1, 1, card);
  const double rate = card.sustained_flop_per_s[precision];

  // Tensor core kernels put narrow groups side by side until they fill the narrowest tile. The products between different groups are zeros.
  const double beside =
      tensor && in_channels > 1
          ? std::clamp(std::floor(std::end(kTensorConvolutionTiles)[-1].n / std::max(x_channels, y_channels)), 1.0, groups)
          : 1;
  const double blocks_of_groups = std::ceil(groups / beside);
  // Forward kernels without tensor cores compute at least 16 channels, even where fewer are needed.
  const double x_wide = x_channels * beside, y_wide = tensor ? y_channels * beside : std::max(y_channels, 16.0);
  Product product{blocks_of_groups, batch * out, y_wide, x_wide * window};
  if (gradient) product = {blocks_of_groups * phases, batch * positions, x_wide, y_channels * beside * window / phases};
  if (pass == Pass::weight_gradient) product = {blocks_of_groups, y_channels * beside, x_wide * window, batch * out};
  const bool split = pass == Pass::weight_gradient;
  const double k_step = tensor ? 32 : 8;
  const auto tiled = [&](const auto& tiles) {
    return tiled_ns(product, tiles, rate * c.efficiency, c.narrow, c.k_overhead, c.least_waves, k_step, split, card);
  };
  Tiled compute = tensor ? tiled(kTensorConvolutionTiles) : tiled(kTiles);
  // Overheads matter less with many full waves, but no kernel is faster than this.
  compute.ns = std::max(compute.ns, 1e9 * 2 * product.batch * product.m * product.n * product.k / (rate * c.most_rate));
  if (strided) compute.ns *= c.strided;
  const bool few = in_channels == 1 || (groups == 1 && in_channels < 4);  // an image's channels, or depthwise: these have their own kernels
  // Before Hopper, profiles and rows of TF32 in channels-first layout show this. Rows of mixed precision (timm) and of an H200 do not.
  const bool turns_all = precision == Precision::tf32 && !s.channels_last && card.capability < 90;
  // The cost of uneven channels was measured in channels-last layout and on Hopper. Kernels that turn whole tensors pad channels, too.
  if (tensor && !few && !turns_all && (s.in_channels % 4 != 0 || s.out_channels % 4 != 0)) compute.ns *= c.uneven;
  if (tensor && few && (window > 9 || pass != Pass::weight_gradient)) compute.ns *= c.few_channels;
  const double flops = 2 * batch * groups * in_channels * out_channels * out * window;
  if (tensor && groups > 1 && in_channels > 1) compute.ns = grouped_ns(compute.ns, s, strided, flops, c, card);
  if (groups > 1 && in_channels == 1) {  // depthwise: these have their own kernels, on the fp32 cores
    if (!tensor || !s.by_library) {
      // PyTorch's own kernels compute in fp32 for all types. Their data gradient visits every position of the input for any stride.
      const ConvolutionConstants& own = card.convolution[Precision::fp32][pass];
      const double own_ns = 1e9 * flops * (gradient ? in / out : 1) / (card.peak_flop_per_s[Precision::fp32] * own.depthwise);
      memory_ns = moving_ns(x_bytes + y_bytes + w_bytes, own.depthwise_passes, 1, card);
      return {{std::max(own_ns, memory_ns) + card.bytes[OperationKind::convolution].floor_ns,
               own_ns > memory_ns ? Bound::compute : Bound::memory}};
    }
    const bool wide = s.channels_last && window > 49;
    const double own_ns = 1e9 * flops / (card.peak_flop_per_s[Precision::fp32] * (wide ? c.depthwise_wide : c.depthwise));
    memory_ns = moving_ns(bytes, c.depthwise_passes, 1, card);
    if (own_ns < compute.ns) compute = {own_ns, false};
  }
  double ns = std::max(compute.ns, memory_ns) + c.overlap * std::min(compute.ns, memory_ns) + c.start_ns;
  Bound bound = memory_ns > compute.ns ? Bound::memory : compute.tail ? Bound::tail : Bound::compute;

  const int64_t* w = s.window;
  const bool square_3 = (w[0] == 3 && w[1] == 3 && w[2] == 1) || (w[0] == 1 && w[1] == 3 && w[2] == 3);
  if (!tensor && groups == 1 && stride_1 && square_3) {
    const double winograd = winograd_ns(s, bytes, memory_ns, rate, c, card);
    if (winograd < ns) {
      ns = winograd;
      bound = Bound::compute;
    }
  }
  // Tensor cores need channels-last layout and a multiple of eight channels. Otherwise separate kernels change the layout or pad the
  // tensors.
  // A window of one element is a product of whole tensors in any layout: profiles of an A100 and an H200 have the kernels of such products.
  const bool pointwise = turns_all && window == 1 && stride_1 && groups == 1;
  double turned_ns = 0;
  if (tensor && in_channels > 1 && !pointwise) {
    const auto unfit = [&](int64_t channels) { return !s.channels_last || channels % 8 != 0; };
    const double turned_bytes = (unfit(s.in_channels) && !few ? x_bytes : 0) + (unfit(s.out_channels) ? y_bytes : 0);
    // In channels-first layout whole tensors are turned; in channels-last only the padding needs a copy.
    const double turned = std::max(c.turned, turns_all ? card.convolution_turned_first : 0);
    if (turned_bytes > 0) turned_ns = moving_ns(turned_bytes, 2 * turned, 1, card) + 2 * card.launch_ns;
    // A window's few elements fill a part of the tile that a block turns: the kernels' own work limits them, not the memory.
    if (turns_all && !few && window > 1)
      turned_ns += std::max(moving_ns(w_bytes, 2, 1, card),
                            1e9 * 2 * w_bytes / (card.convolution_turned_weights * card.multiprocessors * card.clock_hz));
    ns += turned_ns;
  }
  if (ns < 2 * c.start_ns) bound = Bound::launch;
  return {{ns, bound}, turned_ns};
}

struct ChosenConvolution {
  Precision precision;
  ConvolutionTime time;
};

// Where TF32 is allowed, libraries use it or fp32, whichever is faster. No depthwise kernel uses TF32. On Hopper cuDNN 9 computes the
// gradient of a window's weights in TF32 from four channels on, even where fp32 would be faster. On Ampere and Ada it does so, too.
ChosenConvolution chosen_convolution(const Operation& operation, const CardRates& card) {
  const ConvolutionTime own = in_precision(operation, operation.precision, card);
  if (operation.precision != Precision::tf32) return {operation.precision, own};
  const ConvolutionTime plain = in_precision(operation, Precision::fp32, card);
  const ConvolutionShape& shape = operation.convolution;
  const bool depthwise = shape.groups > 1 && shape.groups == shape.in_channels;
  const bool window_weights = shape.pass == Pass::weight_gradient && volume(shape.window) > 1;
  if (!depthwise && card.capability >= 80 && card.capability <= 90 && window_weights &&
      shape.in_channels / std::max<int64_t>(1, shape.groups) >= 4)
    return {Precision::tf32, own};
  return depthwise || plain.all.ns < own.all.ns ? ChosenConvolution{Precision::fp32, plain} : ChosenConvolution{Precision::tf32, own};
}

}  // namespace

Estimate convolution_time(const Operation& operation, const CardRates& card) {
  if (operation.convolution.pass == Pass::backward) {  // one operator, a kernel for each gradient
    Operation part = operation;
    part.convolution.pass = Pass::data_gradient;
    const Estimate data = convolution_time(part, card);
    part.convolution.pass = Pass::weight_gradient;
    const Estimate weight = convolution_time(part, card);
    return {data.ns + weight.ns, weight.ns > data.ns ? weight.bound : data.bound};
  }
  return chosen_convolution(operation, card).time.all;
}

ConvolutionKernels convolution_kernels(const Operation& operation, const CardRates& card) {
  const ChosenConvolution chosen = chosen_convolution(operation, card);
  return {chosen.precision, chosen.time.all.ns > 0 ? chosen.time.turned_ns / chosen.time.all.ns : 0};
}

void read_convolution_constants(const Constants& constants, CardRates* card) {
  const auto of_all = [&](const char* name) { return constants.of_operation(OperationKind::convolution, Precision::fp32, name); };
  card->grouped = {.narrow = of_all("grouped_narrow"),
                   .narrow_of_many = of_all("grouped_narrow_of_many"),
                   .many_channels = of_all("grouped_many_channels"),
                   .least_turned = of_all("grouped_least_turned"),
                   .at_once = of_all("grouped_at_once"),
                   .few_groups = of_all("grouped_few_groups"),
                   .many_groups = of_all("grouped_many_groups"),
                   .groups_power = of_all("grouped_groups_power"),
                   .filled_narrow = of_all("grouped_filled_narrow"),
                   .tile = of_all("grouped_tile")};
  card->convolution_tail_waves = of_all("tail_waves");
  card->convolution_turned_first = of_all("turned_first");
  card->convolution_turned_weights = of_all("turned_weights");
  for (size_t p = 0; p < kPrecisionCount; ++p) {
    const auto precision = static_cast<Precision>(p);
    for (const Pass pass : {Pass::forward, Pass::data_gradient, Pass::weight_gradient}) {
      // Without tensor cores, the kernels of fp32 multiply numbers of two bytes.
      const Precision kernels = card->tensor_cores[precision] ? precision : Precision::fp32;
      const auto of = [&](const char* name) {
        return constants.of_operation(OperationKind::convolution, kernels, std::string(pass_name(pass)) + "_" + name);
      };
      card->convolution[precision][pass] = {of("efficiency"),
                                            of("narrow"),
                                            of("k_overhead"),
                                            of("least_waves"),
                                            of("overlap"),
                                            of("start_ns"),
                                            of("strided_writes"),
                                            of("strided"),
                                            of("winograd"),
                                            of("winograd_fused"),
                                            of("winograd_k_overhead"),
                                            of("winograd_waves"),
                                            of("depthwise"),
                                            of("depthwise_passes"),
                                            of("depthwise_wide"),
                                            of("turned"),
                                            of("grouped"),
                                            of("grouped_strided"),
                                            of("grouped_turned"),
                                            of("few_channels"),
                                            of("uneven"),
                                            of("most")};
    }
  }
}

}  // namespace gpucast
