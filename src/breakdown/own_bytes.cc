#include "src/breakdown/own_bytes.h"

namespace gpucast {

std::vector<CategoryBytesOfRow> own_bytes_at_peak(const std::vector<BreakdownRow>& rows) {
  std::vector<CategoryBytesOfRow> own(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t c = 0; c < kCategories; ++c) {
      const int64_t bytes = rows[i].moments[static_cast<size_t>(Instant::peak)].categories[c].allocated_bytes;
      own[i][c] += bytes;
      if (!rows[i].itself && rows[i].parent >= 0) own[static_cast<size_t>(rows[i].parent)][c] -= bytes;
    }
  }
  return own;
}

}  // namespace gpucast
