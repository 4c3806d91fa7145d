// Why a job takes the memory it takes, and what would reduce it (docs/reference/explain.md). Reports compute nothing; they only print this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/prediction.h"

namespace gpucast {

struct Analysis;

// What an operator made of the memory at the peak, inside of modules of one class.
struct OperatorShare {
  std::string op;           // "nn.functional.softmax"
  std::string module_type;  // "Attention"; "" outside of modules
  int64_t bytes = 0;
};

// Blocks alive at the peak that are alike: of one size, category, operator and tensor, in the same module of each layer.
struct AlikeBlocks {
  int64_t size_bytes = 0;  // of each
  int64_t count = 0;
  std::string category, op;
  std::string module;         // "blocks.*.mlp.0 (Linear)": '*' where they differ
  std::string tensor;         // "blocks.*.mlp.0.weight"; "" unnamed
  Place born;                 // of the first
  bool before_start = false;  // it was there before the history began; then `born` has a stack at most
  int64_t total_bytes() const { return size_bytes * count; }
};

// Free memory of the segments of one size.
struct SegmentSize {
  int64_t segment_bytes = 0;
  int64_t segments = 0;  // those with free memory that hold a block too
  int64_t pieces = 0, free_bytes = 0;
};

// A piece of free memory in a segment that holds blocks, so that the segment can't be given back.
struct Hole {
  int64_t bytes = 0, segment_bytes = 0;
  int64_t blocks = 0;   // in the segment
  AlikeBlocks held_by;  // the largest of them
};

// What is reserved and holds no block, while reserved is at its peak and most of it in use (of a run that ended out of memory: there).
struct FreeMemory {
  Place place;
  int64_t reserved_bytes = 0, allocated_bytes = 0;
  int64_t whole_segments = 0, whole_bytes = 0;  // no block in them: the allocator could give them back
  int64_t pieces = 0, piece_bytes = 0;          // in segments that hold a block too
  std::vector<SegmentSize> sizes;               // the most free bytes first
  std::vector<Hole> holes;                      // the largest first, a few
  int64_t free_bytes() const { return whole_bytes + piece_bytes; }
};

// How a remedy's figures came about.
enum class RemedyBy : uint8_t {
  replay,   // the recorded requests, replayed with other settings of the allocator
  rerun,    // the script, run again with one change
  profile,  // the profiler trace, turned into what CUDA allocates with one change
};
const char* remedy_by_name(RemedyBy by);  // "replay", "rerun", "profile"

struct Remedy {
  RemedyBy by = RemedyBy::replay;
  std::string name;  // "expandable_segments:True", "bf16"
  std::string what;  // what a person does: "halve the batch"
  bool computed = false;
  std::string note;  // not computed: why; computed: what it did, "" when nothing is to be said
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  int64_t saved_allocated_bytes = 0, saved_reserved_bytes = 0;  // below 0: it takes more
  Verdict verdict = Verdict::fits;
};

// A run that ended because an allocation failed.
struct OutOfMemoryExplained {
  std::string op;                        // of autograd, that asked; "" not known
  int64_t capacity_bytes = 0;            // what the allocator could have in all
  int64_t settings_tried = 0;            // allocator settings replayed at this capacity
  std::vector<std::string> gets_past;    // those with which this allocation and all before it succeed; the least trouble first
  int64_t largest_free_block_bytes = 0;  // of what was reserved
};

struct Explanation {
  Prediction prediction;
  std::string folder;                    // where the command was started: paths in it are shown from there; "": not known
  std::optional<AlikeBlocks> last;       // the block whose allocation made the peak
  std::vector<CategoryLine> categories;  // at the peak, the largest first, none of 0
  std::vector<OperatorShare> operators;  // of the largest category, the largest first
  std::vector<AlikeBlocks> blocks;       // the ten largest, by the size of one; alike ones are one
  FreeMemory free;
  std::optional<OutOfMemoryExplained> out_of_memory;
  std::vector<Remedy> remedies;  // computed ones first, those that save most reserved memory first
  int64_t settings_tried = 0;    // allocator settings that were replayed
  std::string baseline;          // of re-runs: what the script as it is took now, when that is not what was recorded
  int64_t reruns_left = 0;       // how often --rerun would run the script
  double run_s = 0;              // about how long one takes; 0: not known
};

std::string explain_text(const Explanation& explanation, const std::string& file, bool colour);
std::string explain_json(const Explanation& explanation);

}  // namespace gpucast
