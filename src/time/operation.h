// The GPU's work as plain data. One operation is the work that one PyTorch operator or one library call launches. It has only the sizes of
// the computation, so its duration can be computed for every card.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

#include "src/time/counted_work.h"
#include "src/time/precision.h"

namespace gpucast {

enum class OperationKind : uint8_t {
  gemm,           // matrix products, batched or not
  convolution,    // any pass, 1 to 3 dimensions
  attention,      // one fused kernel: flash, memory efficient, cuDNN
  normalization,  // batch, layer, group, instance, RMS; softmax too: several passes over rows
  reduction,      // sums, means, losses, norms
  elementwise,    // reads and writes each element once
  indexing,       // gather, scatter, embedding, sort
  copy,           // on the device, also with a change of layout or type; host to device and back
  memset,         // fills
  optimizer,      // multi-tensor kernels: an optimizer's step, clipping, gradient scaling
  collective,     // NCCL
  recurrent,      // cuDNN's LSTM, GRU
  compiled,       // a kernel compiled at run time, counted from its code, whose name shows no other kind
  unknown,        // none of these; timed by its bytes
  count_,
};
const char* operation_kind_name(OperationKind kind);            // as in JSON: "gemm", ...
OperationKind operation_kind_from_name(std::string_view name);  // count_: there is none

enum class Pass : uint8_t { forward, data_gradient, weight_gradient, backward, count_ };
const char* pass_name(Pass pass);
Pass pass_from_name(std::string_view name);  // count_: there is none

// out[batch, m, n] = a[batch, m, k] b[batch, k, n].
struct GemmShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;  // row-major out: b_transposed is a linear layer's forward
  friend auto operator<=>(const GemmShape&, const GemmShape&) = default;
};

// Up to three dimensions of space; unused ones are 1. x[batch, in_channels, in...], w[out_channels, in_channels / groups, window...].
struct ConvolutionShape {
  Pass pass = Pass::forward;
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, window[3] = {1, 1, 1}, stride[3] = {1, 1, 1};
  bool channels_last = false, transposed = false;
  bool by_library = true;  // cuDNN; false: PyTorch's own kernels, as for some depthwise convolutions
  friend auto operator<=>(const ConvolutionShape&, const ConvolutionShape&) = default;
};

inline constexpr int64_t kAccessBytes = 64;  // device memory is read in halves of L2's lines

// PyTorch has three kernels for attention; `any`: not known which.
enum class AttentionKernel : uint8_t { any, flash, efficient, cudnn, count_ };

struct AttentionShape {
  Pass pass = Pass::forward;  // forward or backward
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  bool causal = false;
  int64_t window = 0;    // keys a query sees; 0: all
  bool prefill = false;  // a serving framework's: queries and keys are rotated and the cache is written, too
  AttentionKernel kernel = AttentionKernel::any;
  friend auto operator<=>(const AttentionShape&, const AttentionShape&) = default;
};

enum class CollectiveKind : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  messages,  // sends and receives
  count_
};
const char* collective_kind_name(CollectiveKind kind);            // as in JSON: "all_reduce", ...
CollectiveKind collective_kind_from_name(std::string_view name);  // count_: there is none

// One call of NCCL, or all calls between ncclGroupStart and ncclGroupEnd.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t ranks = 1;  // of the group
  int64_t nodes = 1;  // that they lie on
  int64_t bytes = 0;  // as nccl-tests count them: a rank's buffer; all of a gather's or a scatter's parts; of messages, the larger of what
                      // a rank sends and receives
  int64_t calls = 1;
  friend auto operator<=>(const CollectiveShape&, const CollectiveShape&) = default;
};

// What a thread of a kernel for images does for each of its elements. Loads are counted by the wait that they cause.
struct ElementWork {
  int64_t elements = 0;       // of all threads; 0: the work is not known
  int64_t of_thread = 0;      // elements of a thread; 0: the threads share them evenly
  double waited_loads = 0;    // wait for one another, from different lines of memory
  double near_loads = 0;      // from a line that the thread has just read
  double joined_loads = 0;    // on the way together with another
  double atomics = 0;         // additions in memory
  double atomic_sectors = 0;  // of 32 bytes
  double divisions = 0;       // whole numbers of 64 bits, once in a thread
  friend auto operator<=>(const ElementWork&, const ElementWork&) = default;
};

struct Operation {
  OperationKind kind = OperationKind::unknown;
  Precision precision = Precision::fp32;
  int element_bytes = 4;                      // of its largest input
  int64_t bytes_read = 0, bytes_written = 0;  // each distinct byte of its tensors once
  double flops = 0;                           // a multiplication and an addition are 2
  int64_t launches = 1;                       // kernels; library calls count as 1
  int64_t rows = 0, columns = 0;              // normalization, reduction: rows that are reduced, and their length
  bool per_channel = false;                   // normalization: batch norm, whose rows are channels
  bool channels_last = false;                 // batch norm: by PyTorch's own kernels for channels-last tensors
  bool strided = false;                       // copy, elementwise: neighbours in memory are not neighbours in the other tensor
  bool indexed = false;                       // elementwise, copy: each element's address is computed, as in repeat() and cat()
  bool rereads = false;                       // softmax: a block does not keep its row, and reads it again for each pass
  bool in_registers = false;                  // softmax: a block keeps its row in registers
  int64_t spatial_threads = 0;                // softmax along a dimension that is not the last: threads of its kernel; 0: of another kernel
  bool sums_weights = false;      // layer and RMS norm: a kernel of the backward sums the gradients of the weights over the rows
  bool sums_by_columns = false;   // same: by the kernel of PyTorch 2.11, whose blocks have 32 columns
  int64_t one_block_threads = 0;  // indexing: threads of the one block that computes all rows; 0: there are more blocks
  int64_t sort_bits = 0;          // indexing: of the keys of a radix sort of `rows` x `columns`; 0: no sort
  int64_t sorted_elements = 0;    // indexing: that the threads of `waiting_threads` put in order, in one pass of a radix sort
  int64_t waited_loads = 0;       // reduction, optimizer, indexing: loads of a thread that wait for one another, in each kernel
  int64_t waited_steps = 0;       // indexing: same, a block's steps between two barriers
  int64_t waiting_threads = 0;    // reduction, indexing, images: all threads of the kernel, which may be more than the card holds at once
  int64_t merged_loads = 0;       // reduction: same, of the last block, which adds what the blocks have written; 0: one block a sum
  int64_t cast_tensors = 0;       // elementwise, copy: tensors of a kernel that converts each element's type by a lookup
  int64_t moved_at_once = 0;      // indexing, copy: bytes for each computed address; 0: an element
  int64_t row_blocks = 0;         // indexing, elementwise: blocks of a kernel with a small block for each part; 0: other kernels
  int64_t draws = 0;              // elementwise: calls of a random generator, for up to four numbers each; a thread's begin counts as two
  int64_t far_elements = 0;       // copy, strided: elements read from lines of memory that `far_lines` other lines follow
  int64_t far_lines = 0;          // before the line is read again
  int64_t warp_lines = 0;         // copy, strided: lines of memory that a warp reads for 32 neighbours; 0: not known
  int64_t summed_rows = 0;        // indexing: rows of `columns` that are read or written where rows of equal indices are summed
  bool to_host = false, from_host = false;  // copy: over the bus
  bool between_cards = false;               // copy: to or from another card's memory
  bool pageable = false;                    // copy over the bus: the host's memory is not pinned
  Pass pass = Pass::forward;                // normalization: batch norm's backward reads more than its forward
  GemmShape gemm;                           // gemm
  ConvolutionShape convolution;             // convolution
  AttentionShape attention;                 // attention
  int64_t layers = 1;                       // recurrent
  CollectiveShape collective;               // collective
  ElementWork element_work;                 // elementwise: images
  CountedWork counted;                      // any kind: a kernel whose code was counted; its time follows from these counts
  friend auto operator<=>(const Operation&, const Operation&) = default;
};

}  // namespace gpucast
