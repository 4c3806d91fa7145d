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
  }
  return "";
}

Judgement judge(const Need& need, const LedgerLine& ledger, int64_t total_bytes) {
  Judgement out;
  out.device = {need.peak_reserved_bytes + ledger.low_bytes, need.peak_reserved_bytes + ledger.expected_bytes,
                need.peak_reserved_bytes + ledger.high_bytes};
  const int64_t least = need.peak_allocated_bytes + ledger.low_bytes;
  if (need.ended_in_oom) {
    out.verdict = Verdict::does_not_fit;
    out.reason = "the run ended because the card was full";
  } else if (least > total_bytes) {
    out.verdict = Verdict::does_not_fit;
    out.reason = fmt::format("its tensors alone exceed the card by {}", format_bytes(least - total_bytes));
  } else if (need.cut_by_oom) {
    out.verdict = Verdict::tight;
    out.reason = "not known: the captured run ended early, on a card that was full";
  } else if (out.device.high_bytes <= total_bytes) {
    out.verdict = Verdict::fits;
    out.reason = fmt::format("{} to spare", format_bytes(total_bytes - out.device.high_bytes));
  } else if (out.device.low_bytes <= total_bytes) {
    out.verdict = Verdict::tight;
    const bool expected_fits = out.device.expected_bytes <= total_bytes;
    out.reason = fmt::format("within the uncertainty of what the card holds beside PyTorch: {} by the {} estimate",
                             expected_fits ? format_bytes(total_bytes - out.device.expected_bytes) + " to spare"
                                           : format_bytes(out.device.expected_bytes - total_bytes) + " short",
                             "expected");
  } else {
    out.verdict = Verdict::tight;
    out.needs_reclaim = true;
    out.reason = fmt::format("its tensors fit, but PyTorch would have to give back {} of cached memory as it goes",
                             format_bytes(out.device.low_bytes - total_bytes));
  }
  return out;
}

}  // namespace gpucast
