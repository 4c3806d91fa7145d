// What torch.autocast does on CUDA, operator by operator (ATen/autocast_mode.h of PyTorch, releases 2.6 to 2.14), and where in
// a trace it is at work.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/orchestrate/rules.h"

namespace gpucast {

enum class CastPolicy : uint8_t {
  lower,        // inputs are cast to the lower precision
  fp32,         // inputs are cast to fp32
  fp32_result,  // the result is fp32, by the operator's own doing, unless the call names a type
  promote,      // computes in the widest type of its inputs; so do operators that are on no list
};
CastPolicy cast_policy(std::string_view operator_name);

// Made of other operators, which autocast sees one by one: "aten::cross_entropy_loss".
bool is_seen_through(std::string_view operator_name);

// Keeps its inputs for backward (on its output alone, or on nothing: false).
bool saves_inputs(std::string_view operator_name);
// Keeps its output.
bool saves_result(std::string_view operator_name);

// What lower precision a prediction is for, and where.
struct LowerPrecision {
  bool wanted = false;
  bool fp16 = false;  // else bf16
  bool amp = false;   // false: the whole model; true: what autocast says, within `regions`
  struct Region {
    int64_t begin_ns = 0, end_ns = 0;
  };
  std::vector<Region> regions;  // with amp: by time, do not overlap. Weights are cast once in each.
  std::vector<Region> off;      // torch.autocast(enabled=False) within them

  // -1: autocast is off.
  int region_at(int64_t time_ns) const;
  // Matrix products, convolutions and attention there compute in lower precision.
  bool products_at(int64_t time_ns) const { return wanted && (!amp || region_at(time_ns) >= 0); }
};

// As asked for by the options, else as the trace says: metadata and marks of `gpucast profile`.
LowerPrecision lower_precision_of(const ProfileFacts& facts, const OrchestrateOptions& options);

}  // namespace gpucast
