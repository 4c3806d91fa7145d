// The differences between measured runs and their predictions, by class of job. Upper bounds are computed from them.
// The figures are in data/calibration.json, which eval/memory/upper_bound.py writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpucast/gpu.h"

namespace gpucast {

// Predictions for jobs of one class have similar errors. The class follows from the capture, never from a model's name.
enum class JobClass : uint8_t {
  no_convolutions,   // no convolution that cuDNN computes
  varying_lengths,   // text batches that are padded to their longest text
  dense,             // convolutions with one group, some with a window larger than 1 x 1 (ResNet, VGG)
  pointwise,         // windows of 1 x 1 after the first layer (MobileNet: PyTorch computes its depthwise ones itself)
  grouped,           // some with several groups (RegNet)
  depthwise,         // some with a group for each channel (ConvNeXt)
  first_layer_only,  // only convolutions of the input images (a vision transformer)
  convolutions,      // of any kind
  workspaces_asked,  // the user's own cuDNN gave the workspace sizes: no measured runs
  count_,
};
const char* job_class_name(JobClass job_class);  // as in JSON: "no_convolutions", ...

// A run's memory in addition to the allocator's peak and the ledger's other lines.
struct CalibratedRange {
  int64_t low_bytes = 0, high_bytes = 0;  // 90 % of runs are between these
  int64_t request_bytes = 0;              // not exceeded with the requested confidence; 0 or more
  std::string rows;                       // the runs that the range is based on: "35 measured runs of 4 models (pointwise)"
  std::string wider;                      // why the range is wider than these runs: "none was measured on this card"; or ""
  bool beyond_worst = false;              // request_bytes is above all runs: their number is too small for this confidence
};

// `reserved_bytes`: the allocator's peak. `measured_type`: the job computes in float32, as the measured runs do. `confidence`: from 0.5 to
// below 1.
CalibratedRange calibrated_range(JobClass job_class, const Gpu& gpu, int64_t reserved_bytes, bool measured_type, double confidence);

// The computation on one class of the table, for tests: the quantile of its scores at `confidence`.
struct CalibrationClass {
  std::string name, rows_of;  // rows_of: the class whose rows are used, if this class has too few
  int64_t rows = 0, models = 0;
  double low = 0;                                    // the 5 % quantile
  std::vector<std::pair<double, double>> quantiles;  // (confidence, score), ascending
};
// Between two confidences of the table, the score is interpolated by log(1 - confidence), which is exact for an exponential tail. After the
// last confidence, the same tail continues.
double score_at(const CalibrationClass& row, double confidence);

}  // namespace gpucast
