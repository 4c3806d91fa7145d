#include "src/ledger/beside.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/ledger/ledger_constants.h"

namespace gpucast {
namespace {

void add_line(LedgerLine line, int64_t request_bytes, Beside* out) {
  out->low_bytes += line.low_bytes;
  out->expected_bytes += line.expected_bytes;
  out->high_bytes += line.high_bytes;
  out->least_bytes += std::max<int64_t>(0, line.low_bytes);
  out->request_bytes += std::max(request_bytes, line.expected_bytes);
  out->lines.push_back(std::move(line));
}

}  // namespace

Beside beside_allocator(const Gpu& gpu, const JobFacts& job, double confidence) {
  Beside out;
  for (const LedgerLine& line : device_ledger(gpu, job.cuda_major)) add_line(line, line.high_bytes, &out);
  for (const LedgerLine& line : job.own_lines) add_line(line, line.high_bytes, &out);
  std::string source, wider;
  bool beyond_worst = false;
  for (const JobClass job_class : job.classes) {
    const CalibratedRange range = calibrated_range(job_class, gpu, job.peak_reserved_bytes, job.measured_type, confidence);
    source += (source.empty() ? "" : " and ") + range.rows;
    wider = range.wider;
    beyond_worst = beyond_worst || range.beyond_worst;
    if (job_class == JobClass::no_convolutions) {
      out.request_bytes += range.request_bytes;
      continue;  // the lines above already contain its rows
    }
    const bool lengths = job_class == JobClass::varying_lengths, asked = job_class == JobClass::workspaces_asked;
    LedgerLine line;
    line.what = lengths ? "batches of other lengths" : "convolution workspaces";
    line.library = lengths ? "" : "cudnn";
    line.low_bytes = range.low_bytes;
    line.high_bytes = range.high_bytes;
    line.source = asked     ? fmt::format("asked of cuDNN {} on this machine, and a part of reserved; ", job.cudnn_asked)
                  : lengths ? ""
                            : "not modelled; ";
    line.source += asked ? range.rows : fmt::format("90 % of {} stayed within this range", range.rows);
    if (!range.wider.empty()) line.source += "; wider than usual: " + range.wider;
    if (!asked && !lengths && !job.how_to_ask.empty()) line.source += "; " + job.how_to_ask;
    add_line(std::move(line), range.request_bytes, &out);
  }
  if (beyond_worst) source += "; beyond the worst of them by an exponential tail";
  if (!wider.empty()) source += "; wider than usual: " + wider;
  if (job.profile_method == "gpucast") {
    const double error = ledger_constants().profile_error;
    out.request_bytes += static_cast<int64_t>(error * static_cast<double>(job.peak_reserved_bytes));
    source += fmt::format("; {:.0f} % for what a CPU's profile leaves open", 100 * error);
  } else if (!job.profile_method.empty()) {
    source += fmt::format("; errors of method {} are not in it", job.profile_method);
  }
  out.request_source = std::move(source);
  return out;
}

}  // namespace gpucast
