#include "src/trace/convolutions.h"

#include <algorithm>

namespace gpucast {
namespace {

constexpr int64_t kFewChannels = 4;  // of images: grey, RGB, RGBA

int64_t* kind_of(const std::vector<int64_t>& x, const std::vector<int64_t>& w, Convolutions* out) {
  if (x.size() < 3 || w.size() != x.size() || x[1] <= 0 || w[1] <= 0 || x[1] % w[1] != 0) return &out->unknown;
  const int64_t groups = x[1] / w[1];
  if (x[1] <= kFewChannels) return &out->few_channels;
  if (groups == x[1]) return &out->depthwise;
  if (groups > 1) return &out->grouped;
  const bool one_by_one = std::all_of(w.begin() + 2, w.end(), [](int64_t size) { return size == 1; });
  return one_by_one ? &out->pointwise : &out->dense;
}

}  // namespace

void add_convolution(const std::vector<int64_t>& x, const std::vector<int64_t>& w, bool float32, Convolutions* out) {
  ++*kind_of(x, w, out);
  if (!float32) ++out->not_float32;
}

}  // namespace gpucast
