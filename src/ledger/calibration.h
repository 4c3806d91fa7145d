// How far measured runs were from what was predicted for them, by class of job: what an upper bound is made of.
// The figures are data/calibration.json, which eval/memory/upper_bound.py writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/gpu.h"

namespace gpucast {

// Jobs of one class are off by similar amounts. By what a capture knows of the job, never by a model's name.
enum class JobClass : uint8_t {
  no_convolutions,   // no convolution that cuDNN computes
  varying_lengths,   // text batches that are padded to their longest text
  dense,             // convolutions, all of one group, some with a window larger than 1 x 1 (ResNet, VGG)
  pointwise,         // behind the first layer all with a window of 1 x 1 (MobileNet: PyTorch computes its depthwise ones itself)
  grouped,           // some of several groups (RegNet)
  depthwise,         // some with a group for each channel (ConvNeXt)
  first_layer_only,  // none but of images as they come (a vision transformer)
  convolutions,      // of any kind
  workspaces_asked,  // convolutions whose workspaces the user's own cuDNN chose: no run was measured
  count_,
};
const char* job_class_name(JobClass job_class);  // as in JSON: "no_convolutions", ...

// What a run took beyond the allocator's peak and the ledger's other lines.
struct CalibratedRange {
  int64_t low_bytes = 0, high_bytes = 0;  // 90 % of runs lie between
  int64_t request_bytes = 0;              // no more is needed, with the confidence asked for; 0 or more
  std::string rows;                       // what it rests on: "35 measured runs of 4 models (pointwise)"
  std::string wider;                      // "" or why it is wider than they say: "none was measured on this card"
  bool beyond_worst = false;              // request_bytes is more than the rows alone can promise
};

// `reserved_bytes`: the allocator's peak. `measured_type`: it computes in float32, as the measured runs do. `confidence` from 0.5 to
// below 1.
CalibratedRange calibrated_range(JobClass job_class, const Gpu& gpu, int64_t reserved_bytes, bool measured_type, double confidence);

// The pure part, for tests: a table's class, and the quantile at `confidence` of its scores.
struct CalibrationClass {
  std::string name, rows_of;  // rows_of: the class whose rows were taken, where it had too few itself
  int64_t rows = 0, models = 0;
  double low = 0;                                    // the 5 % quantile
  std::vector<std::pair<double, double>> quantiles;  // (confidence, score), ascending
};
// Between two of the table's confidences in proportion to the logarithm of what is left to 1: exact for an exponential tail. Beyond
// the last the same tail goes on.
double score_at(const CalibrationClass& row, double confidence);

}  // namespace gpucast
