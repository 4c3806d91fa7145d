#include "src/time/kinds.h"

namespace gpucast {

// Kernels written by hand give a row to a block of threads, where PyTorch's own cut the tensor into equal parts.
Estimate elementwise_time(const Operation& operation, const CardRates& card) {
  if (operation.rows <= 0 || operation.columns <= 0) return time_by_bytes(operation, card);
  // An element costs its place and each tensor's load or store: the constants are of one tensor that is read and one that is written.
  const double tensor_bytes = static_cast<double>(operation.rows) * static_cast<double>(operation.columns) * operation.element_bytes;
  const double steps = 1 + static_cast<double>(operation.bytes_read + operation.bytes_written) / tensor_bytes;
  RowConstants rows = card.elementwise_rows;
  rows.element_cycles *= steps / 3;
  return time_by_rows(operation, rows, card);
}

}  // namespace gpucast
