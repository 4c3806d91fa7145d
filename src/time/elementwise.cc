#include "src/time/kinds.h"

namespace gpucast {

// Handwritten kernels give each row to one block of threads. PyTorch's own kernels cut the tensor into equal parts.
Estimate elementwise_time(const Operation& operation, const CardRates& card) {
  if (operation.draws > 0 || operation.row_blocks > 0) {
    const BytesConstants& c = card.bytes[OperationKind::elementwise];
    const double floor_ns = is_fill(operation) ? c.fill_floor_ns : c.floor_ns;
    return at_least_blocks(
        at_least_places(time_by_bytes(operation, card), static_cast<double>(operation.draws), card.draw_cycles, floor_ns, card),
        operation.row_blocks, floor_ns, card);
  }
  if (operation.rows <= 0 || operation.columns <= 0) return time_by_bytes(operation, card);
  // An element costs its address and each tensor's load or store. The constants are for one tensor read and one tensor written.
  const double tensor_bytes = static_cast<double>(operation.rows) * static_cast<double>(operation.columns) * operation.element_bytes;
  const double steps = 1 + static_cast<double>(operation.bytes_read + operation.bytes_written) / tensor_bytes;
  RowConstants rows = card.elementwise_rows;
  rows.element_cycles *= steps / 3;
  return time_by_rows(operation, rows, card);
}

}  // namespace gpucast
