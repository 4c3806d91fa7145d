// A card's rates and constants, looked up once. The time of each kind of operation is computed from them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "src/base/links.h"
#include "src/occupancy/occupancy.h"
#include "src/time/correction.h"
#include "src/time/interval.h"
#include "src/time/nccl_settings.h"
#include "src/time/network.h"
#include "src/time/operation.h"

namespace gpucast {

inline constexpr size_t kKindCount = static_cast<size_t>(OperationKind::count_);

// Kinds that spend their FLOPs in matrix products.
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

// Times of a multiprocessor are in cycles, because they get shorter when the clock is higher.
struct GemmConstants {
  double efficiency = 1;  // of the card's sustained rate
  double k_overhead = 0;  // a tile's start and end cost as much as this many more steps of k
  double edge = 0;  // smaller tiles read more for each product: a tile of m x n takes 1 + edge x (128 / m + 128 / n - 1.5) times as long
  double least_k_cycles = 0;        // one step of k takes at least this
  double feed_bytes_per_cycle = 0;  // that a multiprocessor can read for its tile, one of its own or one of a pair
  double largest_tile = 1;          // m x n, for linear layers in fp32: products that are not batched and have a transposed second operand
  double transposed = 1;            // the time of these products is multiplied by this
  double tile_cycles = 0;           // a tile, whatever its size
  double later_overhead = 1;        // of k_overhead, for the tiles of a multiprocessor after the first: kernels that stay start them early
  double batched_latency_cycles = 0;  // same as latency_cycles, of batched products on plain cores, if that is more
  double latency_cycles = 0;          // from a step of k to the next one of the same tile, at least
  double resident = 1;                // tiles of 128 x 128 that a multiprocessor holds at a time; up to four smaller ones in the same space
  double split_cycles = 0;            // for the sum of the parts, where k is cut into parts
  double floor_cycles = 0;            // a kernel's start and end
  double wave_smoothing = 0;          // 0: tiles go in whole waves; 1: the last wave costs what is in it
  double overlap = 0;                 // compute and memory of equal length run together in (1 + overlap) times one of them: together_ns()
  double l2_bytes_per_cycle = 0;      // of a multiprocessor
  double store_bytes_per_cycle = 1e30;  // same, of the result
  double dram_fraction = 1;             // of the card's sustained rate
  double warm_inputs = 0;               // activations up to this part of L2 are read from there
  double warm_weights = 0;              // same, for the second operand of a product that is not batched
  double throttle = 0;  // long kernels take up to this much longer, because the clock falls; more on cards with more FLOP/s for each watt
  double throttle_ns = 0;                 // kernels of this length are slowed down by half of `throttle`
  double unaligned_flop_per_cycle = 1e9;  // of a multiprocessor's tensor cores, where elements are read one at a time
  double thin_passes = 1;  // where the two smaller dimensions are at most `thin`: the product's bytes are moved this many times
  double thin = 0;
  double least_part = 0;                          // where k is cut, its parts are at least this long
  double whole_products = 0;                      // m * n * k below this: k is not cut
  double whole_k = 0;                             // same: the largest k that is left whole
  double short_k = 0;                             // below this k, no tile is larger than 128 x 64
  double batched_tile_m = 1, batched_tile_n = 1;  // the only tile of batched fp32 products; 1: there are several
};

// One of PyTorch's kernels for attention.
struct AttentionKernelConstants {
  double rate = 1, backward_rate = 1;  // of the rate a matrix product sustains
  double softmax_cycles = 0;           // as in AttentionConstants
};

// What PyTorch's kernels have in common.
struct OwnAttentionConstants {
  double wide_efficiency = 1;  // heads wider than 128 reach this part of the rate; heads wider than 256, this part of that
  double block_cycles = 0, wave_smoothing = 0, l2_bytes_per_cycle = 1e30;  // as in AttentionConstants
  double backward_passes = 0;  // how many times the backward's other kernels move its tensors: sums of rows, gradients of queries in fp32
};

// Heads of up to 64, 128, 192, 256, and more numbers: kernels for wider heads have smaller tiles.
enum class HeadWidth : uint8_t { narrow, middle, wide, wider, widest, count_ };

// Of serving frameworks' kernels for heads of one width, and of a prefill's other kernels.
struct HeadWidthConstants {
  double efficiency = 1;    // relative to AttentionConstants::efficiency
  double alone = 1;         // of the time for a key, where a multiprocessor has one block
  double packed = 0;        // the part of the kernels that put queries of all heads that share keys into one block
  double cycles = 0;        // a prefill's other kernels: their starts and ends
  double passes = 0;        // how many times these kernels move queries and results
  double cache_passes = 0;  // same, keys and values
  // A prefill whose queries see a window, relative to one without: other kernels, and not all frameworks have them.
  double window_efficiency = 1, window_cycles = 1, window_passes = 1;
  double window_outside = 0;  // the part of the keys outside of the window that the kernel reads and computes, too
};

// Of serving frameworks' kernels, and where the kernel is not known.
struct AttentionConstants {
  double efficiency = 1;               // of the rate a matrix product sustains
  double backward_efficiency = 1;      // same
  double softmax_cycles = 0;           // the softmax of a block's 128 scores for one key; exponentials have their own units
  double block_cycles = 0;             // a block of queries, for any number of keys
  double packed_single = 0;            // as HeadWidthConstants::packed, of a single query, if that is more
  double prefill_token_cycles = 0;     // of the card, for each token
  double overlap = 0;                  // as in GemmConstants
  double dram_fraction = 1;            // of the card's sustained rate
  double l2_full = 0.5, l2_none = 1;   // tensors of up to this share of L2's size are in L2 wholly; from this share on, not at all
  double prefill_wide_efficiency = 1;  // of heads of 129 to 192, in a prefill: where frameworks have only a Triton kernel for them
  By<HeadWidth, HeadWidthConstants> width;
  By<AttentionKernel, AttentionKernelConstants> kernel;
  OwnAttentionConstants own;
  double l2_bytes_per_cycle = 0;  // of a multiprocessor
  double wave_smoothing = 0;      // as in GemmConstants
};

// Kinds that are bound by memory.
struct BytesConstants {
  double dram_fraction = 1;       // of the card's sustained rate
  double passes = 1;              // times its bytes are moved
  double floor_ns = 0;            // of each launch
  double fill_fraction = 1;       // of the card's sustained rate, as a factor of dram_fraction, of a kernel that only writes
  double fill_floor_ns = 0;       // of its launch
  double strided_fraction = 1;    // of that rate, where neighbouring elements of one tensor are apart in another
  double index_cycles = 0;        // of a multiprocessor, for each element whose address is computed
  double line_cycles = 0;         // same, for each element of a warp that reads each element from another line
  double cast_cycles = 0;         // of a multiprocessor, for each element of each tensor whose type is looked up
  double wait_cycles = 0;         // a thread's, for each of its waited_loads
  double start_cycles = 0;        // a thread's, before and after these
  double wait_overlap = 0;        // of these waits and the memory: together_ns()
  double near_load_cycles = 0;    // same, for a load from a line that the thread has just read
  double joined_load_cycles = 0;  // same, for a load on the way together with another
  double atomic_cycles = 0;       // same, for an addition in memory
  double division_cycles = 0;     // of a multiprocessor, for each thread's division of 64 bits
  double merge_cycles = 0;        // until the last block of a sum knows that it is the last
  double merge_load_cycles = 0;   // that block's, for each of its merged_loads
};

// Kernels that give each row to one block of threads: a multiprocessor's work in addition to waiting for memory.
struct RowConstants {
  double row_cycles = 0, element_cycles = 0;  // of a multiprocessor with 2048 threads, for a row and for each element of it
  double step_cycles = 0;                     // of a block, for 1024 elements of its row; a kernel with few rows waits for this
  double passes = 1;                          // times the bytes are moved
  double overlap = 0;                         // as in GemmConstants
  double rows_at_work = 0;                    // the most of a multiprocessor; 0: at_work_bytes says it
};

struct NormalizationConstants {
  RowConstants short_softmax, long_softmax;  // one warp a row up to 1024 columns, else one block a row
  RowConstants layer;                        // layer, group and batch norm: statistics are written too
  RowConstants plain;                        // RMS norm without them
  double backward_passes = 1;
  double batch_passes = 1, batch_backward_passes = 1;  // batch norm
  // Batch norm, a block of threads that has a channel: the bytes it moves in a cycle, in the backward too; its start, its sums over its
  // threads and its end; the elements of a channel that it keeps, so that it reads them once.
  double channel_bytes_per_cycle = 0, channel_backward_bytes_per_cycle = 0, channel_cycles = 0;
  double kept_elements = 0, kept_backward_elements = 0;
  // Batch norm, PyTorch's own kernels for channels-last tensors: a multiprocessor's cycles for an element of the statistics, in the
  // backward too, and how often the kernel that writes the output moves its bytes.
  double statistics_cycles = 0, statistics_backward_cycles = 0, statistics_passes = 1;
  double layer_backward_rows = 1;           // layer and RMS norm: the backward's row_cycles over the forward's
  double weight_sum_cycles = 0;             // a multiprocessor's, for an element of the sums over rows in a backward
  double weight_row_cycles = 0;             // same, by columns: of a block, for a row
  double reread_full = 1, reread_none = 1;  // long softmax: over l2_full and l2_none, where a block reads its row again
};

// A library's convolution kernels, for one pass.
struct ConvolutionConstants {
  double efficiency = 1;      // of the sustained rate of a GEMM
  double narrow = 1;          // with the narrowest tile, this part of `efficiency` remains
  double k_overhead = 0;      // a tile's start and end cost as much as this many more steps of k
  double least_waves = 0;     // a multiprocessor with fewer tiles needs as long as for this many
  double overlap = 0;         // the part of the shorter of compute and memory time that does not run at the same time as the longer one
  double start_ns = 0;        // before and after the kernel
  double strided_writes = 0;  // data gradient with a stride: how many more times the input's bytes are moved
  double strided = 1;         // data gradient with a stride and a window: its time over the time of its products
  double winograd = 0;        // efficiency of windows of 3x3 as products of 4x4 blocks of the output, in several kernels
  double winograd_fused = 0;  // same, with 2x2 blocks in one kernel
  double winograd_k_overhead = 0;  // k_overhead of these products
  double winograd_waves = 0;       // least_waves of these products
  double depthwise = 0;            // part of the card's fp32 peak
  double depthwise_passes = 1;
  double depthwise_wide = 0;   // same, for windows larger than 7x7 in channels-last layout
  double turned = 1;           // tensor cores, other layouts: the part of both tensors' bytes that is moved to channels-last
  double grouped = 0;          // the most that groups of many channels reach of the card's fp32 peak, in channels-last layout
  double grouped_strided = 1;  // same, data gradient with a stride: the time is multiplied by this
  double grouped_turned = 1;   // groups of many channels in other layouts: their time over the time of their products
  double few_channels = 1;  // tensor cores, fewer than 4 channels: time divided by the products' time (weight gradient: windows above 3x3)
  double uneven = 1;        // tensor cores, channels of all groups not a multiple of four: time over the time of the products
  double most_rate = 1;     // the most that a convolution without Winograd reaches of a GEMM's sustained rate
};

// Convolutions in groups of more than one channel, on tensor cores.
struct GroupedConstants {
  double narrow = 0, narrow_of_many = 0;   // groups of at most this many channels are narrow; same, where there are many groups
  double many_channels = 0;                // narrow groups, data gradient with a stride: separate kernels from this many channels in all
  double least_turned = 0;                 // `grouped_turned` holds for groups of at least this many channels
  double at_once = 0;                      // narrow groups, data gradient with a stride: the kernel computes this many groups at a time
  double few_groups = 0, many_groups = 0;  // fewer groups count as this many; this many groups fill the card
  double groups_power = 0;                 // fewer groups fill (groups / many_groups) to this power of the card
  double filled_narrow = 0;                // the part of a tile that narrow groups fill
  double tile = 0;                         // channels that fill a tile
};

// cuDNN's recurrent networks.
struct RecurrentConstants {
  double data_gradient = 1, weight_gradient = 1;  // a product's time over the time of cuBLAS's fastest kernel
  double sum_bytes_per_cycle = 0;                 // a multiprocessor's, in the sums of the biases' gradients
};

// Kernels whose code was counted (counted.cc). Cycles are of a multiprocessor.
struct CountedConstants {
  double dram_fraction = 1;              // of the card's sustained rate
  double l2_bytes_per_cycle = 0;         // requested of L2
  double l2_shared_bytes_per_cycle = 0;  // the same, where other blocks request the same bytes
  double floor_ns = 0;                   // of each launch
  double atomic_cycles = 0;              // of a multiprocessor, for each sector of an atomic request
  double atomic_pass_cycles = 0;         // between two atomics on one place; on several lines of memory, over the root of their number
  double load_ns = 0;                    // until device memory has answered
  double block_cycles = 0;               // of the card, between the begins of two blocks
  double issue_per_cycle = 4;            // instructions of warps
  double integer_lanes = 64;             // threads whose integer instruction runs in a cycle
  double special_lanes = 16;             // same: exponentials, roots, reciprocals
  double tensor_fraction = 1;            // of a library's matrix product, that matrix instructions reach
  double wave_smoothing = 0;             // as in GemmConstants
  double pipe_overlap = 0;               // of matrix and other instructions: together_ns()
  double overlap = 0;                    // of memory and instructions
  double chain_overlap = 0;              // of these and the longest warp's chain
};

struct CardRates {
  int capability = 0;          // 80 for 8.0
  bool own_constants = false;  // the card has its own layer of constants; else all follows from its datasheet and architecture
  int multiprocessors = 0;
  double clock_hz = 0;
  double l2_bytes = 0;
  double l2_copies = 1;                        // 2: L2 has two halves, and each keeps its own copy of bytes that all multiprocessors read
  By<Precision, double> peak_flop_per_s;       // datasheet
  By<Precision, double> sustained_flop_per_s;  // a GEMM's rate before its clock falls
  By<Precision, bool> tensor_cores;            // products of this precision run on tensor cores
  double peak_bytes_per_s = 0;                 // datasheet
  double dram_bytes_per_s = 0;                 // the rate of a large copy
  double l2_bytes_per_s = 0;                   // for bytes that are in L2
  double l2_full = 0, l2_none = 0;             // tensors of up to this share of L2's size are in L2 wholly; from this share on, not at all
  double at_work_bytes = 0;                    // bytes of the rows that a multiprocessor works on at once
  double unwritten_share = 0;                  // after a large fill, this share of L2's bytes is not yet in device memory
  double tail_fill = 0;                        // where the last wave fills less of the multiprocessors, the kernel's bound is Bound::tail
  int threads = 0;                             // the most that a multiprocessor holds
  double link_bytes_per_s = 0;                 // to the host
  double pageable_bytes_per_s = 0;             // the most from or to host memory that is not pinned
  double launch_ns = 0;                        // the least time of a kernel
  double event_ns = 0;                         // a stream's time for an event that keeps its time
  By<OperationKind, By<Precision, Interval>> interval;                // one for cards with their own constants, and one for other cards
  By<Precision, Interval> window_interval;                            // of attention to a window
  By<Precision, Interval> prefill_interval, prefill_window_interval;  // of a framework's prefill, without and with a window
  Interval step_interval;                                             // of a whole step
  Interval guessed_interval, unknown_interval;  // of the part of its time in operators estimated as elementwise; in work of unknown kind

  By<Precision, GemmConstants> gemm;
  By<Precision, AttentionConstants> attention;
  std::span<const Correction> corrections;
  double correction_share = 1;  // of each correction; near 0: the model alone
  By<OperationKind, BytesConstants> bytes;
  By<Precision, NormalizationConstants> normalization;
  By<Precision, By<Pass, ConvolutionConstants>> convolution;
  GroupedConstants grouped;
  double convolution_turned_first = 0;    // at least: passes over tensors in channels-first layout, to change it
  double convolution_turned_weights = 1;  // bytes of weights, read and written in another layout, a cycle of a multiprocessor
  double convolution_tail_waves = 1;      // with more waves than this for each full one, a convolution's bound is Bound::tail
  NetworkConstants network;
  Links links;  // of the machine; card_rates(): the machine that the card is usually in
  NcclSettings nccl;
  bool addresses_peers = false;  // cards of this kind address each other over PCIe (GeForce cards since Turing do not)
  CountedConstants counted;
  OccupancyCard occupancy;          // without rules: the capability is not known
  double recurrent_efficiency = 1;  // of a matrix product's sustained rate, where no sizes are known
  By<Precision, RecurrentConstants> recurrent;
  RowConstants elementwise_rows;
  double draw_cycles = 0;              // of a multiprocessor, for each of an operation's draws
  double sort_cycles = 0;              // of a multiprocessor, for each element and each 4 bits of its key, where one block sorts a row
  double sort_fraction = 1;            // of the memory's rate, where a block sorts a long row
  double summed_element_cycles = 0;    // of a multiprocessor, for each element of summed_rows
  double sort_pass_cycles = 0;         // of a multiprocessor, for each of an operation's sorted_elements
  double sort_row_cycles = 0;          // of the block that sorts a row, for each element and each 4 bits of its key
  double indexing_step_cycles = 0;     // for each of an operation's waited_steps
  double indexing_element_cycles = 0;  // of a multiprocessor, for each element that is moved
};

}  // namespace gpucast
