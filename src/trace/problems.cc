// The table of all problems that a capture may have.

#include "gpucast/trace.h"

namespace gpucast {
namespace {

constexpr ProblemInfo kProblems[] = {
    {"truncated_file", Severity::warning,
     "The capture is cut off: the report covers what was written. Capture again, or copy the file again (in binary mode)."},
    {"damaged_file", Severity::warning,
     "The capture's compressed bytes are damaged: the report covers what comes before. Copy the file again."},
    {"no_eof", Severity::warning, "The capture has no end line, so its writer was interrupted: the report covers what was written."},
    {"lines_missing", Severity::warning, "The capture's end line counts other lines than the file has: something removed or added some."},
    {"bad_json", Severity::warning, "Lines that are not JSON were skipped."},
    {"bad_record", Severity::warning, "Records with missing or malformed fields were skipped, or read in part."},
    {"bad_event", Severity::warning, "Events with missing or malformed fields were skipped: totals may be off."},
    {"no_process", Severity::warning,
     "The capture does not say which PyTorch it comes from (no process record): CUDA's version and the allocator's settings are not "
     "known."},
    {"no_end", Severity::warning, "The capture has no end record: PyTorch's own counters are not there to check against."},
    {"several_processes", Severity::warning,
     "The file holds more than one process; only the first is reported. Each process belongs in a file of its own."},
    {"mark_misplaced", Severity::warning, "Some marks do not lie between two allocator events: phases and modules may be off by an event."},
    {"alloc_outside_segment", Severity::warning,
     "Allocations outside of any known segment: the allocator's history is not complete, and reserved memory is too low."},
    {"free_unknown", Severity::warning, "Frees of memory that was never seen allocated: the allocator's history is not complete."},
    {"segment_overlap", Severity::warning, "Segments that overlap one another: the allocator's history contradicts itself."},
    {"segment_free_in_use", Severity::warning,
     "Segments were freed while memory in them was in use: the allocator's history is not complete."},
    {"split_unexpected", Severity::note,
     "Blocks were split in places that the allocator's settings do not explain; their sizes were corrected."},
    {"phase_unbalanced", Severity::note, "Phases or modules ended that had not begun, or never ended."},
    {"tensor_without_block", Severity::note, "Tensors were listed at addresses where no allocated memory was known."},
    {"bad_segment", Severity::warning,
     "Segments of the snapshot overlap, or their blocks do not add up: they were left out, and what was allocated before the first "
     "event may be missing."},
    {"start_unclear", Severity::warning,
     "The snapshot's history and its segments contradict each other: what was allocated before the first event is uncertain."},
};
static_assert(std::size(kProblems) == static_cast<size_t>(Problem::count_));

}  // namespace

const ProblemInfo& problem_info(Problem problem) { return kProblems[static_cast<size_t>(problem)]; }

}  // namespace gpucast
