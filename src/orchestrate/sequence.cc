#include "src/orchestrate/sequence.h"

#include <algorithm>

namespace gpucast {

uint32_t Sequence::add(int64_t size_bytes, Moment alloc, Moment free, SpanIndex span, const char* rule, Role role) {
  GpuBlock block;
  block.size_bytes = size_bytes;
  block.alloc = alloc;
  block.free = free;
  block.span = span;
  block.role = role;
  block.rule = rule;
  blocks.push_back(block);
  return static_cast<uint32_t>(blocks.size() - 1);
}

void Sequence::set_other_kernels(std::vector<OtherKernel> kernels) {
  std::sort(kernels.begin(), kernels.end(), [](const OtherKernel& a, const OtherKernel& b) { return a.begin_ns < b.begin_ns; });
  other_kernels.clear();
  for (const OtherKernel& kernel : kernels) {
    if (!other_kernels.empty() && kernel.begin_ns <= other_kernels.back().end_ns) {
      other_kernels.back().end_ns = std::max(other_kernels.back().end_ns, kernel.end_ns);
    } else {
      other_kernels.push_back(kernel);
    }
  }
}

bool Sequence::in_other_kernel(int64_t time_ns) const {
  const auto behind = std::partition_point(other_kernels.begin(), other_kernels.end(),
                                           [&](const OtherKernel& kernel) { return kernel.begin_ns <= time_ns; });
  return behind != other_kernels.begin() && time_ns < std::prev(behind)->end_ns;
}

}  // namespace gpucast
