// The effect of torch.autocast on CUDA, operator by operator (ATen/autocast_mode.h of PyTorch, releases 2.6 to 2.14), and the parts of a
// trace where it is on.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/orchestrate/rules.h"

namespace gpucast {

enum class CastPolicy : uint8_t {
  lower,        // inputs are cast to the lower precision
  fp32,         // inputs are cast to fp32
  fp32_result,  // the operator itself makes the result fp32, unless the call names a type
  promote,      // computes in the widest type of its inputs; also for operators that are on no list
};
CastPolicy cast_policy(std::string_view operator_name);

// The operator calls other operators, and autocast handles each of those: "aten::cross_entropy_loss".
bool is_seen_through(std::string_view operator_name);

// Whether backward needs the operator's inputs. (False: it needs only the output, or nothing.)
bool saves_inputs(std::string_view operator_name);
// Whether backward needs the operator's output.
bool saves_result(std::string_view operator_name);

// Which lower precision to predict, and for which parts of the trace.
struct LowerPrecision {
  bool wanted = false;
  bool fp16 = false;  // false: bf16
  bool amp = false;   // false: the whole model; true: as autocast does, within `regions`
  struct Region {
    int64_t begin_ns = 0, end_ns = 0;
  };
  std::vector<Region> regions;  // with amp: ordered by time, without overlaps. Weights are cast once in each.
  std::vector<Region> off;      // torch.autocast(enabled=False) inside the regions

  // -1: autocast is off.
  int region_at(int64_t time_ns) const;
  // Whether matrix products, convolutions and attention at this time compute in lower precision.
  bool products_at(int64_t time_ns) const { return wanted && (!amp || region_at(time_ns) >= 0); }
};

// From the options; otherwise from the metadata and marks of `gpucast profile` in the trace.
LowerPrecision lower_precision_of(const ProfileFacts& facts, const OrchestrateOptions& options);

}  // namespace gpucast
