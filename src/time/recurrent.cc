#include <algorithm>
#include <cmath>

#include "src/time/kinds.h"

namespace gpucast {
namespace {

// A recurrent network's sizes. Each step of each layer multiplies its inputs, of all steps at once, and the state of the step before.
struct RecurrentSizes {
  double steps, batch, directions, gates, hidden;  // steps: of all layers; gates: numbers of all gates
  double inputs;                                   // of a layer, on average
};

RecurrentSizes recurrent_sizes(const Operation& operation) {
  const GemmShape& step = operation.gemm;
  RecurrentSizes out{static_cast<double>(std::max<int64_t>(1, operation.rows)),
                     static_cast<double>(step.m),
                     static_cast<double>(std::max<int64_t>(1, step.batch)),
                     static_cast<double>(step.n),
                     static_cast<double>(step.k),
                     0};
  const double weights = operation.flops / (2 * out.steps * out.batch);  // of a layer
  out.inputs = std::max(1.0, weights / (out.directions * out.gates) - out.hidden);
  return out;
}

double product_ns(const Operation& operation, double batch, double m, double n, double k, const CardRates& card) {
  Operation product;
  product.kind = OperationKind::gemm;
  product.precision = operation.precision;
  product.element_bytes = operation.element_bytes;
  const auto whole = [](double size) { return static_cast<int64_t>(std::llround(size)); };
  product.gemm = {whole(batch), whole(m), whole(n), whole(k), false, true};
  return gemm_time(product, card).ns;
}

// A step's kernel that computes the gates and the state, or their gradients.
double cell_ns(const Operation& operation, const RecurrentSizes& s, double passes, const CardRates& card) {
  const double bytes = passes * s.batch * s.directions * (2 * s.gates + 3 * s.hidden) * operation.element_bytes;
  return card.bytes[OperationKind::recurrent].floor_ns + 1e9 * bytes / card.l2_bytes_per_s;
}

// The inputs' products. Several layers run side by side: each begins with the first steps of the layer before, so the steps' inputs are
// multiplied a few at a time (cuDNN 9.19).
double inputs_ns(const Operation& operation, const RecurrentSizes& s, double steps_at_once, double n, double k, const CardRates& card) {
  const double products = operation.layers > 1 ? std::max(1.0, std::round(s.steps / steps_at_once)) : 1;
  return products * product_ns(operation, 1, s.steps / products * s.batch, n, k, card);
}

// The sums of the biases' gradients: a block of threads has 32 columns. GRU's four sums wait for one another, LSTM's go together.
double bias_sums_ns(const Operation& operation, const RecurrentSizes& s, const RecurrentConstants& c, const CardRates& card) {
  const double blocks = std::min<double>(card.multiprocessors, std::ceil(s.hidden / 32));
  const double waits = s.gates == 3 * s.hidden ? 4 : 1;
  const double bytes = waits * s.steps * s.batch * s.directions * s.gates * operation.element_bytes;
  return 1e9 * bytes / (blocks * c.sum_bytes_per_cycle * card.clock_hz);
}

// Without sizes: FLOPs, bytes, or a kernel's start for each step.
Estimate unsized_time(const Operation& operation, const CardRates& card) {
  const double steps_ns = static_cast<double>(std::max<int64_t>(1, operation.rows)) * card.bytes[OperationKind::recurrent].floor_ns;
  const double compute_ns = 1e9 * operation.flops / (card.recurrent_efficiency * card.sustained_flop_per_s[operation.precision]);
  const Estimate memory = time_by_bytes(operation, card);
  return {std::max({compute_ns, memory.ns, steps_ns}) + card.bytes[OperationKind::recurrent].floor_ns,
          steps_ns > std::max(compute_ns, memory.ns) ? Bound::launch
          : compute_ns > memory.ns                   ? Bound::compute
                                                     : Bound::memory};
}

}  // namespace

// cuDNN computes what does not depend on the step before as large products, and the rest step by step.
Estimate recurrent_time(const Operation& operation, const CardRates& card) {
  if (operation.gemm.m <= 0 || operation.gemm.n <= 0 || operation.gemm.k <= 0) return unsized_time(operation, card);
  const RecurrentConstants& c = card.recurrent[operation.precision];
  const RecurrentSizes s = recurrent_sizes(operation);
  double at_once_ns = 0, step_ns = 0;
  switch (operation.pass) {
    case Pass::weight_gradient:
      for (const double inputs : {s.inputs, s.hidden})
        at_once_ns += c.weight_gradient * product_ns(operation, s.directions, s.gates, inputs, s.steps * s.batch, card);
      at_once_ns += bias_sums_ns(operation, s, c, card);
      break;
    case Pass::data_gradient:
      at_once_ns = inputs_ns(operation, s, 4, s.inputs, s.directions * s.gates, card);
      step_ns = c.data_gradient * product_ns(operation, s.directions, s.batch, s.hidden, s.gates, card) + cell_ns(operation, s, 1.5, card);
      break;
    default:
      at_once_ns = inputs_ns(operation, s, 8, s.directions * s.gates, s.inputs, card);
      step_ns = product_ns(operation, s.directions, s.batch, s.gates, s.hidden, card) + cell_ns(operation, s, 1, card);
  }
  return {at_once_ns + s.steps * step_ns, s.steps * step_ns > at_once_ns ? Bound::launch : Bound::compute};
}

}  // namespace gpucast
