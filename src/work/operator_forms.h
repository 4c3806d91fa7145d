// PyTorch's operators, and the form of each one's work. The form decides which function of operator_table.cc computes its sizes.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpucast {

enum class OperatorForm : uint8_t {
  elementwise,         // writes a tensor of the shape that its inputs are broadcast to
  comparison,          // same, with one byte an element
  dropout_with_mask,   // same, and one byte an element for the mask
  half,                // same, with half of the elements
  fill,                // only writes
  copy,                // writes as much as it reads
  copy_to,             // copies the second tensor to the first
  reduction,           // over the dimensions in its first list; over all, if it has no list
  reduction_of_one,    // same, and a number may name one dimension
  loss,                // over all dimensions
  loss_by_index,       // takes one element of each row, the class that an index names; its backward writes this element alone
  rows_by_index,       // one row of its first tensor for each index
  index,               // rows where the index has fewer dimensions, else elements
  embedding_gradient,  // sums the rows of equal indices
  sort,                // along a dimension, keys with their places
  select,              // the first numbers of rows along a dimension, and their places
  search,              // of its second tensor's numbers in sorted rows, which are its first
  scan,                // along a dimension, as much as it reads
  indexing,            // an element for each index
  bias,                // copies its first tensor, broadcast, to where the product of the next two is added
  unpack_4bit,         // bitsandbytes: two numbers for each byte
  product_4bit,        // bitsandbytes: a product with packed weights
  grouped_product,     // products of matrices that lie one after another; a list of ends divides them
  update,              // an optimizer's kernel for one parameter: reads all tensors, writes all but the gradient, which is the first
  by_threads,          // on sparse tensors, whose number of values is not recorded: sized by a kernel's threads
  lists,               // an optimizer's or another list's kernels
  attention,
  batch_norm,
  group_norm,
  softmax,
  layer_norm,
  rms_norm,
  convolution,
  pooling,    // also changes of an image's size, and images sampled at places
  unfolding,  // windows of an image as columns, and their sums
  padding,    // of an image with its own elements
  unknown,    // not in the table: estimated as elementwise
};

// An operator's name and its meaning: "aten::add_" is "add", and works in place.
struct OperatorName {
  explicit OperatorName(std::string_view whole);

  std::string_view stem;
  OperatorForm form = OperatorForm::unknown;
  bool in_place = false, backward = false;
};

}  // namespace gpucast
