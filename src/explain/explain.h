// Analysis -> Explanation, by looking and by replay. What runs the script again is src/cli/explain.cc.
#pragma once

#include <string>
#include <vector>

#include "gpucast/explain.h"
#include "src/predict/analysis.h"

namespace gpucast {

// Everything but what-ifs that need the script or the profiler trace again. O(events * allocator settings tried).
Explanation explain(const Analysis& analysis);

// The what-ifs (as `gpucast run --what-if` takes them) that can matter for this capture, in the order they are tried. Left out: set-to-none
// where zero_grad does so already, no-foreach where the optimizer's step allocates nothing for a while, checkpointing
// where no class of modules is there twice or keeps nothing.
std::vector<std::string> what_ifs_to_try(const Analysis& analysis);

// The class to checkpoint: of those with modules inside that are there more than once, the one under which most activations are
// alive at the peak; of equals the innermost. "" when there is none.
std::string class_to_checkpoint(const Analysis& analysis);

// What a what-if is for a person: "halve the batch".
std::string what_if_words(const std::string& name);

// `with`: the analysis with the change. Compares it with `without`.
Remedy compare_remedy(RemedyBy by, const std::string& name, const Prediction& without, const Prediction& with);

// Computed ones first, by what they save.
void sort_remedies(std::vector<Remedy>* remedies);

}  // namespace gpucast
