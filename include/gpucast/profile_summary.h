// What became of a profiler trace's bytes on the way to a prediction, and by which rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpucast {

struct ProfileBytesLine {
  std::string name;  // "kept", "host", "kernel_scratch", ...
  int64_t blocks = 0, bytes = 0;
};

// The effect of one rule.
struct ProfileRuleLine {
  std::string name, what;
  int64_t dropped_blocks = 0, dropped_bytes = 0, added_blocks = 0, added_bytes = 0, changed_blocks = 0;
};

struct ProfileSummary {
  std::string method;                   // gpucast, xmem, veritasest, dnnmem; "recorded" for a trace of a GPU
  int64_t blocks = 0, bytes = 0;        // of the trace
  std::vector<ProfileBytesLine> fates;  // they add up to both
  int64_t added_blocks = 0, added_bytes = 0;
  std::vector<ProfileRuleLine> rules;  // in the order they ran
};

}  // namespace gpucast
