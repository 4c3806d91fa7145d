// The ranks of one job, and the devices of one process, compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpucast {

struct Prediction;
enum class Verdict : uint8_t;

struct RankLine {
  int64_t rank = 0, device = 0;  // "cuda:1" in that process is device 1
  Verdict verdict{};
  int64_t allocated_bytes = 0, reserved_bytes = 0;  // the peaks
  int64_t expected_bytes = 0, request_bytes = 0;    // of all device memory
  std::string capture_path;                         // "": not kept
};

// The difference of one category at the two peaks of allocated; below 0: less.
struct CategoryDifference {
  std::string name;
  int64_t bytes = 0;
};

struct Ranks {
  std::vector<RankLine> lines;
  size_t judged = 0, least = 0;                 // indices in `lines`: the deciding prediction, and the smallest one
  std::vector<CategoryDifference> differences;  // between these two, the largest first, without zeros
};

// `predictions`: one for each rank and device, at least one. The deciding one does not fit, or needs most.
Ranks compare_ranks(const std::vector<Prediction>& predictions);

}  // namespace gpucast
