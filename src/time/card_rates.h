// What the functions of each kind of operation need of a card: its rates and its constants, looked up once.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "src/time/operation.h"

namespace gpucast {

inline constexpr size_t kKindCount = static_cast<size_t>(OperationKind::count_);
inline constexpr size_t kPrecisionCount = static_cast<size_t>(Precision::count_);

// Kinds whose FLOPs are those of matrix products.
inline bool makes_products(OperationKind kind) {
  return kind == OperationKind::gemm || kind == OperationKind::convolution || kind == OperationKind::attention ||
         kind == OperationKind::recurrent;
}

// A table by kind or precision: table[OperationKind::gemm].
template <class Key, class Value>
struct By : std::array<Value, static_cast<size_t>(Key::count_)> {
  using Base = std::array<Value, static_cast<size_t>(Key::count_)>;
  Value& operator[](Key key) { return Base::operator[](static_cast<size_t>(key)); }
  const Value& operator[](Key key) const { return Base::operator[](static_cast<size_t>(key)); }
};

// Of a kind in a precision: measured / expected at the 5th and the 95th percentile, of cards with constants of their own and of others.
struct Interval {
  double low = 0.7, high = 1.4;
};

// Times of a multiprocessor are in cycles: they shrink with the clock.
struct GemmConstants {
  double k_overhead = 0;  // a tile costs as much as this many more of k: its start and its end
  double edge = 0;  // smaller tiles read more for each product: a tile of m x n takes 1 + edge x (128 / m + 128 / n - 1.5) of its time
  double least_k_cycles = 0;        // one step of k takes at least this
  double feed_bytes_per_cycle = 0;  // that a multiprocessor can read for its tile
  double largest_tile = 1;          // m x n, of fp32 products that are not batched and have a transposed second operand: linear layers
  double transposed = 1;            // time of these
  double tile_cycles = 0;           // a tile, whatever its size
  double split_cycles = 0;          // a k that is cut into parts: their sum
  double floor_cycles = 0;          // a kernel's start and end
  double wave_smoothing = 0;        // 0: tiles go in whole waves; 1: the last wave costs what is in it
  double overlap = 0;               // compute and memory that alone take equally long together take 1 + this times as long: together_ns()
  double l2_bytes_per_cycle = 0;    // of a multiprocessor
  double warm_inputs = 0;           // activations up to this part of L2 are read from there
  double warm_weights = 0;          // same, for the second operand of a product that is not batched
  double throttle = 0;              // long kernels run at lower clocks: up to this much longer (the more FLOP/s a watt has to pay for)
  double throttle_ns = 0;           // half of it when they are as long as this
  double unaligned = 1;             // time of a product whose rows are not aligned to 16 bytes, on tensor cores
  double thin_passes = 1;           // a product whose two smaller dimensions are at most `thin` takes this many times as long as its bytes
  double thin = 0;
  double least_part = 0;                          // where k is cut, its parts are at least this long
  double batched_tile_m = 1, batched_tile_n = 1;  // the one tile of batched fp32 products; 1: there are several
};

struct AttentionConstants {
  double efficiency = 1;           // of the rate a matrix product sustains
  double backward_efficiency = 1;  // same
  double wide_efficiency = 1;      // heads wider than 128: part of it; twice, wider than 256
  double softmax_cycles = 0;       // the softmax of a block's 128 scores of one key: exponentials, on units of their own
  double block_cycles = 0;         // a block of queries, whatever its keys
  double prefill_cycles = 0;       // a prefill's kernels beside it: their starts and ends
  double prefill_passes = 0;       // same: times they move its tensors
  double l2_bytes_per_cycle = 0;   // of a multiprocessor
  double wave_smoothing = 0;       // as of GEMM
};

// Kinds that are bound by memory.
struct BytesConstants {
  double dram_fraction = 1;     // of the card's sustained rate
  double passes = 1;            // times its bytes are moved
  double floor_ns = 0;          // of each launch
  double strided_fraction = 1;  // of that rate, where neighbours in one tensor are not neighbours in another
  double index_cycles = 0;      // of a multiprocessor, for an element whose place is computed
};

// Kernels that give each row to one block of threads: what a multiprocessor does beside waiting for memory.
struct RowConstants {
  double row_cycles = 0, element_cycles = 0;  // of a multiprocessor with 2048 threads, for a row and for each element of it
  double step_cycles = 0;                     // a block's, for 1024 elements of its row: what a kernel of few rows waits for
  double passes = 1;                          // times the bytes are moved
  double overlap = 0;                         // as of GEMM
};

struct NormalizationConstants {
  RowConstants short_softmax, long_softmax;  // up to 1024 columns a warp a row, then a block
  RowConstants layer;                        // layer, group and batch norm: statistics are written too
  RowConstants plain;                        // RMS norm without them
  double backward_passes = 1;
  double batch_passes = 1, batch_backward_passes = 1;  // batch norm
  double channel_bytes_per_cycle = 0;                  // same: of the block of threads that has a channel
};

// One library algorithm's; by pass.
struct ConvolutionConstants {
  double efficiency = 1;           // of the sustained rate of a GEMM
  double narrow = 1;               // what remains of it with the narrowest tile
  double k_overhead = 0;           // a tile costs as much as this many more of k
  double least_waves = 0;          // a multiprocessor with fewer tiles than this takes as long as with this many
  double overlap = 0;              // part of the smaller of compute and memory time that is not hidden behind the larger
  double start_ns = 0;             // before and after the kernel
  double strided_writes = 0;       // data gradient with a stride: times the input's bytes are moved besides
  double strided = 1;              // same, with a window: time over that of its products
  double winograd = 0;             // efficiency of a window of 3x3 as products of 4x4 blocks of the output, in kernels of their own
  double winograd_fused = 0;       // same, of 2x2 blocks in one kernel
  double winograd_k_overhead = 0;  // as k_overhead
  double winograd_waves = 0;       // as least_waves
  double depthwise = 0;            // part of the card's fp32 peak
  double depthwise_passes = 1;
  double depthwise_wide = 0;   // as depthwise, of windows above 7x7, where channels lie together
  double turned = 1;           // tensor cores, channels that do not lie together: the part of both tensors' bytes that is turned around
  double grouped = 0;          // part of the card's fp32 peak that groups of many channels reach at most, where channels lie together
  double grouped_strided = 1;  // same, data gradient with a stride: time over that
  double grouped_turned = 1;   // time of groups of many channels over that of their products, where channels do not lie together
  double few_channels = 1;     // tensor cores, fewer than 4 channels: time over that of its products (weight gradient: windows above 3x3)
  double uneven = 1;           // tensor cores, channels (of all groups) that are no multiple of four: time over that of its products
  double most_rate = 1;        // of the sustained rate of a GEMM, that a convolution without Winograd reaches at most, however large it is
};

// Convolutions in groups of more than one channel, on tensor cores.
struct GroupedConstants {
  double narrow = 0, narrow_of_many = 0;   // groups of at most this many channels are narrow; of many groups
  double many_channels = 0;                // narrow groups have kernels for a data gradient with a stride from this many channels of all on
  double least_turned = 0;                 // channels of a group, from which on `grouped_turned` counts
  double at_once = 0;                      // data gradient with a stride: what one group of narrow ones costs, in groups that are done
  double few_groups = 0, many_groups = 0;  // the least that counts; the number that fills the card
  double groups_power = 0;                 // of the part of the card that fewer groups fill
  double filled_narrow = 0;                // part of a tile that narrow groups fill
  double tile = 0;                         // channels that fill a tile
};

struct CollectiveConstants {
  double tree_floor = 0;  // of a ring's start: a tree's
  double ring_hops = 0;   // a ring's step synchronises through memory: this many times as long as from card to card
};

struct CardRates {
  int capability = 0;          // 80 for 8.0
  bool own_constants = false;  // the card has a layer of its own; else all follows from its datasheet and architecture
  int multiprocessors = 0;
  double clock_hz = 0;
  double l2_bytes = 0;
  double l2_copies = 1;                        // of what all multiprocessors read: where L2 is in two halves, each keeps its own
  By<Precision, double> peak_flop_per_s;       // datasheet
  By<Precision, double> sustained_flop_per_s;  // what a GEMM reaches before its clock falls
  By<Precision, bool> tensor_cores;            // it runs on them
  double peak_bytes_per_s = 0;                 // datasheet
  double dram_bytes_per_s = 0;                 // what a large copy reaches
  double l2_bytes_per_s = 0;                   // of bytes that lie in L2
  double l2_full = 0, l2_none = 0;             // up to this share of L2 all bytes lie in it; from this share on, none
  double at_work_bytes = 0;                    // of rows, that a multiprocessor works on at once
  double tail_fill = 0;                        // a last wave that fills less of the multiprocessors bounds the kernel (Bound::tail)
  int threads = 0;                             // that a multiprocessor holds
  double link_bytes_per_s = 0;                 // to the host
  double pageable_bytes_per_s = 0;             // at most, from or to the host's memory that is not pinned
  double peer_bytes_per_s = 0;                 // to another card, as nccl-tests' bus bandwidth of a large all-reduce
  double peer_hop_ns = 0;                      // from card to card
  double launch_ns = 0;                        // the least time of a kernel
  By<OperationKind, By<Precision, Interval>> interval;
  Interval step_interval;  // of a whole step

  By<Precision, GemmConstants> gemm;
  By<Precision, AttentionConstants> attention;
  By<OperationKind, BytesConstants> bytes;
  By<Precision, NormalizationConstants> normalization;
  By<Precision, By<Pass, ConvolutionConstants>> convolution;
  GroupedConstants grouped;
  double convolution_tail_waves = 1;  // waves, over those that are full, above which a convolution's bound is its tail
  CollectiveConstants collective;
  double recurrent_efficiency = 1;  // of the rate a matrix product sustains
  RowConstants elementwise_rows;
  double indexing_element_cycles = 0;  // of a multiprocessor, for each element that is moved
};

}  // namespace gpucast
