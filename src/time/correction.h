// What measured kernels of a card say beyond the model: which kernel the vendor's library takes for which sizes. A correction is a sum of
// small regression trees (gradient boosting), fitted to log(measured / expected) of one card's rows: eval/operations/fit_corrections.py.
// It is for the cards, the precisions and the range of sizes of these rows; libraries take other kernels on other cards.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpucast/gpu.h"
#include "src/time/interval.h"
#include "src/time/operation.h"

namespace gpucast {

struct Correction {
  // Features are sizes and times as logarithms to the base 2; correction.cc lists them.
  struct Node {
    int feature = -1;    // -1: a leaf
    float number = 0;    // values of the feature up to this go to the next node, others to `right`; a leaf's part of the sum
    uint32_t right = 0;  // index into the tree
  };
  struct Range {
    int feature = 0;
    double least = 0, most = 0;
  };

  OperationKind kind = OperationKind::gemm;
  std::vector<Precision> precisions;
  bool batched = false;  // gemm: of batched products; else of linear layers, b transposed
  std::vector<Range> ranges;
  std::vector<std::vector<Node>> trees;
  Interval interval;  // of a corrected time
};

// All corrections for this card. The span stays valid.
std::span<const Correction> corrections_of(const Gpu& gpu);

// From the text of data/time/corrections.json. Throws Error: it has another form.
std::vector<Correction> read_corrections(std::string_view json, const std::string& card);

struct Corrected {
  double factor = 1;
  const Correction* by = nullptr;  // nullptr: no correction is for this operation
};
// The time of a product's or an attention's FLOPs and bytes at these rates, from its sizes alone.
double shape_ideal_ns(const Operation& operation, double flop_per_s, double bytes_per_s);

// `expected_ns`: of the model, without corrections. `ideal_ns`: shape_ideal_ns().
Corrected corrected(std::span<const Correction> corrections, const Operation& operation, double expected_ns, double ideal_ns);

}  // namespace gpucast
