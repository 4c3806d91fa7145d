// The backward of an embedding on the card, aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpucast {

inline constexpr int64_t kFewIndices = 3072;    // up to this number one kernel does it, without scratch memory
inline constexpr int64_t kRowsPerPartial = 10;  // NROWS_PER_THREAD

// Rows of equal indices are summed in parts, and then these sums.
struct EmbeddingSums {
  int64_t segments = 0, partials = 0;  // indices that differ, and parts: the most
};
inline EmbeddingSums embedding_sums(int64_t indices, int64_t weights) {
  const int64_t segments = std::min(indices, weights);
  return {segments, indices / kRowsPerPartial + segments};
}

}  // namespace gpucast
