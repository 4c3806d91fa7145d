// Analysis -> Explanation, found from the analysis and by replay. src/cli/explain.cc runs the script again.
#pragma once

#include <string>
#include <vector>

#include "gpucast/explain.h"
#include "src/predict/analysis.h"

namespace gpucast {

// The whole explanation, except what-ifs that need the script or the profiler trace again. O(events * allocator settings tried).
Explanation explain(const Analysis& analysis);

// The what-ifs (values of `gpucast run --what-if`) that may help this capture, in the order they are tried. Left out: set-to-none if
// zero_grad does that already, no-foreach if the optimizer's step allocates no temporaries, checkpointing if no class of modules occurs
// twice and keeps activations, chunked-loss without has_large_loss(), bf16 if most FLOPs of the observed step are in half precision.
std::vector<std::string> what_ifs_to_try(const Analysis& analysis);

// Whether the step's cross entropy has probabilities of many classes: a language model's.
bool has_large_loss(const Analysis& analysis);

// The class of modules to checkpoint: among classes that occur more than once and contain modules, the one with the most activation bytes
// alive at the peak; among equal ones the innermost. "" when there is none.
std::string class_to_checkpoint(const Analysis& analysis);

// A what-if in words for the report: "halve the batch".
std::string what_if_words(const std::string& name);

// `with`: the analysis with the change. Compares it with `without`.
Remedy compare_remedy(RemedyBy by, const std::string& name, const Prediction& without, const Prediction& with);

// Sorts: computed ones first, those that save most first.
void sort_remedies(std::vector<Remedy>* remedies);

}  // namespace gpucast
