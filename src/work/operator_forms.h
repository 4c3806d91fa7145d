// Which operators of PyTorch there are, and which form their work has: the function in operator_table.cc that follows from it.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpucast {

enum class OperatorForm : uint8_t {
  elementwise,         // writes what its inputs are broadcast to, ...
  comparison,          // ... a byte an element
  dropout_with_mask,   // ... and a byte an element for the mask
  half,                // ... half of it
  fill,                // writes alone
  copy,                // writes what it reads
  copy_to,             // the first tensor from the second
  reduction,           // over the dimensions in its first list; without one over all
  reduction_of_one,    // the same, and one dimension may be named by a number
  loss,                // over all dimensions
  rows_by_index,       // one row of its first tensor for each index
  index,               // rows where the index has fewer dimensions, else elements
  embedding_gradient,  // writes a row for each weight
  indexing,            // an element for each index
  lists,               // an optimizer's or another list's kernels
  attention,
  batch_norm,
  group_norm,
  softmax,
  layer_norm,
  rms_norm,
  convolution,
  pooling,
  unknown,  // of no row: estimated as elementwise
};

// An operator's name, and what it says: "aten::add_" is "add", and works in place.
struct OperatorName {
  explicit OperatorName(std::string_view whole);

  std::string_view stem;
  OperatorForm form = OperatorForm::unknown;
  bool in_place = false, backward = false;
};

}  // namespace gpucast
