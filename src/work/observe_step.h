// Turns one observed step into operations. Each piece of work is assigned to the operator that launched it, and becomes an operation with
// sizes, a phase and a module.
//
// A piece of work belongs to the innermost operator that ran on its thread at the time of the launch; one clock times both. A library call
// contains its own sizes. The kernels of one operator call are one operation; its bytes follow from the operator's inputs.
#pragma once

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/time/operation.h"
#include "src/work/step_operations.h"

namespace gpucast {

// A copy or a fill.
Operation operation_of_copy(const Work& work);
// A kernel without a known operator: each of its threads counts as reading one number and writing one.
Operation operation_by_threads(const Work& work);

// False: no step was observed, or the file is damaged and its step may not be whole.
bool has_step_operations(const Trace& trace);
// The reason why has_step_operations() is false, and what to do.
Error why_no_step(const Trace& trace);
// Only follow() (src/predict/predict.cc) calls this; all other code reads Facts::step. Throws why_no_step().
StepOperations step_operations(const Trace& trace);

}  // namespace gpucast
