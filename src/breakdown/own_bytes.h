// The bytes of a row without the rows below it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gpucast/breakdown.h"

namespace gpucast {

using CategoryBytesOfRow = std::array<int64_t, kCategories>;

// Allocated at the peak, for each row. A row "itself" has the same bytes as its parent: leave it out when adding up.
std::vector<CategoryBytesOfRow> own_bytes_at_peak(const std::vector<BreakdownRow>& rows);

}  // namespace gpucast
