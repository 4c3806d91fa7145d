// Why a job needs its memory, and what would reduce it (docs/reference/explain.md). Reports compute nothing; they only print this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpucast/prediction.h"

namespace gpucast {

struct Analysis;

// The memory at the peak that an operator made inside modules of one class.
struct OperatorShare {
  std::string op;           // "nn.functional.softmax"
  std::string module_type;  // "Attention"; "" outside of modules
  int64_t bytes = 0;
};

// Blocks alive at the peak with the same size, category, operator and tensor, in the same module of each layer.
struct AlikeBlocks {
  int64_t size_bytes = 0;  // of each block
  int64_t count = 0;
  std::string category, op;
  std::string module;         // "blocks.*.mlp.0 (Linear)": '*' where the names differ
  std::string tensor;         // "blocks.*.mlp.0.weight"; "" unnamed
  Place born;                 // where the first one was allocated
  bool before_start = false;  // it existed before the history began; then `born` has at most a stack
  int64_t total_bytes() const { return size_bytes * count; }
};

// Free memory in the segments of one size.
struct SegmentSize {
  int64_t segment_bytes = 0;
  int64_t segments = 0;  // segments that hold blocks and free memory
  int64_t pieces = 0, free_bytes = 0;
};

// A free piece in a segment that holds blocks, so the segment cannot be given back.
struct Hole {
  int64_t bytes = 0, segment_bytes = 0;
  int64_t blocks = 0;   // in the segment
  AlikeBlocks held_by;  // the largest of those blocks
};

// Reserved memory that holds no block, at the moment when reserved is at its peak and most of it is in use (after an out of memory: at that
// moment).
struct FreeMemory {
  Place place;
  int64_t reserved_bytes = 0, allocated_bytes = 0;
  int64_t whole_segments = 0, whole_bytes = 0;  // without blocks: the allocator could give them back
  int64_t pieces = 0, piece_bytes = 0;          // in segments that also hold blocks
  std::vector<SegmentSize> sizes;               // the most free bytes first
  std::vector<Hole> holes;                      // a few, the largest first
  int64_t free_bytes() const { return whole_bytes + piece_bytes; }
};

// How a remedy's figures were computed.
enum class RemedyBy : uint8_t {
  replay,   // the recorded requests, replayed with other settings of the allocator
  rerun,    // the script, run again with one change
  profile,  // the profiler trace, turned into CUDA's allocations with one change
};
const char* remedy_by_name(RemedyBy by);  // "replay", "rerun", "profile"

struct Remedy {
  RemedyBy by = RemedyBy::replay;
  std::string name;  // "expandable_segments:True", "bf16"
  std::string what;  // what the user does: "halve the batch"
  bool computed = false;
  std::string note;  // not computed: the reason; computed: its effect, "" for nothing to add
  int64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  int64_t saved_allocated_bytes = 0, saved_reserved_bytes = 0;  // below 0: it needs more
  Verdict verdict = Verdict::fits;
};

// A run that ended because an allocation failed.
struct OutOfMemoryExplained {
  std::string op;                        // the autograd operator that requested it; "" not known
  int64_t capacity_bytes = 0;            // all memory that the allocator could have
  int64_t settings_tried = 0;            // allocator settings replayed at this capacity
  std::vector<std::string> gets_past;    // settings with which this allocation and all before it succeed, the simplest first
  int64_t largest_free_block_bytes = 0;  // of the reserved memory
};

struct Explanation {
  Prediction prediction;
  std::string folder;                    // where the command was started, paths are shown relative to it; "": not known
  std::optional<AlikeBlocks> last;       // the block whose allocation made the peak
  std::vector<CategoryLine> categories;  // at the peak, the largest first, without zeros
  std::vector<OperatorShare> operators;  // operators of the largest category, the largest first
  std::vector<AlikeBlocks> blocks;       // the ten largest by the size of one; alike blocks are merged
  FreeMemory free;
  std::optional<OutOfMemoryExplained> out_of_memory;
  std::vector<Remedy> remedies;  // computed ones first, then by saved reserved memory, the largest first
  int64_t settings_tried = 0;    // allocator settings that were replayed
  std::string baseline;          // for re-runs: the memory of the unchanged script now, if it differs from the recorded memory
  bool reruns_tried = false;     // the script was run again, or that was tried
  int64_t reruns_left = 0;       // the number of runs of the script that --rerun would start
  double run_s = 0;              // about the time of one run; 0: not known
};

std::string explain_text(const Explanation& explanation, const std::string& file, bool colour);
std::string explain_json(const Explanation& explanation);

}  // namespace gpucast
