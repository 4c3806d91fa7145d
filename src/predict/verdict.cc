#include "src/predict/verdict.h"

#include <fmt/core.h>

#include "src/base/bytes.h"

namespace gpucast {

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::fits:
      return "fits";
    case Verdict::tight:
      return "tight";
    case Verdict::does_not_fit:
      return "does_not_fit";
    case Verdict::none:
      return "none";
    case Verdict::grows:
      return "grows";
  }
  return "";
}

Judgement judge_need(const MemoryNeed& need, const Beside& beside, int64_t total_bytes) {
  Judgement out;
  const int64_t reserved = need.peak_reserved_bytes;
  out.device = {reserved + beside.low_bytes, reserved + beside.expected_bytes, reserved + beside.high_bytes,
                reserved + beside.request_bytes};
  const int64_t least = need.peak_allocated_bytes + beside.least_bytes;
  if (need.ended_in_oom) {
    out.verdict = Verdict::does_not_fit;
    out.reason = "the run ended because the card was full";
    return out;
  }
  if (least > total_bytes) {
    out.verdict = Verdict::does_not_fit;
    out.reason = fmt::format("its tensors and the CUDA context alone exceed the card by {}", format_bytes(least - total_bytes));
    return out;
  }
  if (need.cut_by_oom) {
    out.verdict = Verdict::tight;
    out.reason = "not known: the captured run ended early, on a card that was full";
    return out;
  }
  if (!need.nothing_to_judge.empty()) {
    out.verdict = Verdict::none;
    out.reason = need.nothing_to_judge;
    return out;
  }
  if (out.device.request_bytes <= total_bytes) {
    out.verdict = Verdict::fits;
    out.reason = fmt::format("{} to spare", format_bytes(total_bytes - out.device.expected_bytes));
    if (out.device.request_bytes > out.device.expected_bytes) {
      out.reason += fmt::format(", at worst {}", format_bytes(total_bytes - out.device.request_bytes));
    }
    return out;
  }
  out.verdict = Verdict::tight;
  if (reserved + beside.least_bytes <= total_bytes) {
    const std::string distances = out.device.expected_bytes <= total_bytes
                                      ? fmt::format("{} to spare, at worst {} short", format_bytes(total_bytes - out.device.expected_bytes),
                                                    format_bytes(out.device.request_bytes - total_bytes))
                                      : fmt::format("{} short, at best {} to spare", format_bytes(out.device.expected_bytes - total_bytes),
                                                    format_bytes(total_bytes - reserved - beside.least_bytes));
    out.reason = distances + ": the card's memory outside PyTorch is not known exactly";
    return out;
  }
  // PyTorch's reserved memory does not fit. PyTorch gives cached memory back before it fails; a replay shows whether that is enough.
  const RunsAt at_best = need.runs_at(total_bytes - beside.least_bytes);
  if (!at_best.runs) {
    out.verdict = Verdict::does_not_fit;
    out.reason =
        "its tensors would fit, but not in the pieces that are free: PyTorch runs out of memory though it gives all cached memory back";
    return out;
  }
  out.needs_reclaim = true;
  const RunsAt expected = need.runs_at(total_bytes - beside.expected_bytes);
  const std::string times = fmt::format("{} time{}", expected.reclaims, expected.reclaims == 1 ? "" : "s");
  if (need.runs_at(total_bytes - beside.request_bytes).runs) {
    out.reason = fmt::format("it runs, but PyTorch has to give cached memory back ({}), which costs time", times);
  } else if (expected.runs) {
    out.reason = fmt::format(
        "it should run, with PyTorch giving cached memory back ({}); if the memory outside PyTorch is at its upper bound, it runs out",
        times);
  } else {
    out.reason = "it runs only by the low estimate of the card's memory outside PyTorch, and with cached memory given back as it goes";
  }
  return out;
}

}  // namespace gpucast
