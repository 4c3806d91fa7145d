// The duration of each operator's kernels, library call, copy and fill on a card. A run with a clock asks for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "src/time/card_rates.h"
#include "src/time/collective.h"
#include "src/time/gpu_timeline.h"
#include "src/time/operation.h"
#include "src/work/counted_kernels.h"

namespace gpucast {

class LaunchTimes {
 public:
  explicit LaunchTimes(const CardRates& rates) : rates_(rates) {}

  // A question of the virtual GPU (src/vgpu/core/clock_work.cc):
  //   "operator NAME LAUNCHES GX GY GZ BX BY BZ KERNEL [ARGUMENT, ...]"  all its kernels together, and the first of them; arguments as in a
  //                                                   capture's lines "operator_kind"
  //   "rest ..."                                      likewise: its kernels after a copy or a fill
  //   "call TF32 TF32 LIBRARY NAME JSON"              whether products and convolutions may use TF32: 1 or 0
  //   "kernel GX GY GZ BX BY BZ NAME"                 a kernel outside of operators, or with a work of its own (known_kernels.h)
  //   "ptx CODE TEXT"                                 the text of a code, as a JSON string; no time
  //   "values ID ADDRESS BYTES"                       what the card's memory holds there, in hexadecimal digits; no time
  //   "code CODE GX GY GZ BX BY BZ DYNAMIC REGISTERS STATIC LOCAL ARGUMENTS VALUES [ID ...] NAME"  a kernel of this code: its shared
  //                                                   memory, registers, local memory, arguments' bytes and known values
  //   "copy KIND BYTES PAGEABLE", "fill BYTES"
  // Unset: an operator without a tensor on the card, a code that could not be counted. Any other question gets no time.
  std::optional<GpuTimeline::Work> answer(std::string_view question);

  // "nccl RANKS RANK JSON": the ranks of a node (0: not known), the communicator's own, and calls of NCCL that run as one kernel, [[name,
  // arguments], ...].
  struct Communication {
    double duration_ns = 0;
    CollectiveShare share;
    bool meets_all = true;  // false: its messages meet one by one
  };
  Communication communication(std::string_view question);

  // Questions so far, and how many of them were about operators, kernels and calls that are not known.
  int64_t questions() const { return questions_; }
  int64_t unknown_questions() const { return unknown_questions_; }

 private:
  GpuTimeline::Work work_of(const Operation& operation) const;

  std::optional<GpuTimeline::Work> answer_code(std::string_view question);

  const CardRates rates_;
  CountedKernels counted_;
  std::unordered_map<int64_t, KnownValues> values_;
  int64_t questions_ = 0, unknown_questions_ = 0;
};

}  // namespace gpucast
