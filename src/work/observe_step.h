// One observed step -> operations: each piece of work finds the operator that asked for it, and becomes an operation with its sizes, in the
// phase and module it belongs to.
//
// A piece of work belongs to the innermost operator that ran on its thread at that moment; both are timed by one clock. A library call says
// its sizes itself; the kernels of one operator's call are one operation, whose bytes follow from the operator's inputs.
#pragma once

#include "gpucast/error.h"
#include "gpucast/trace.h"
#include "src/time/operation.h"
#include "src/work/step_operations.h"

namespace gpucast {

// A copy or a fill; a kernel of which only its threads are known: each reads one number and writes one.
Operation operation_of_copy(const Work& work);
Operation operation_by_threads(const Work& work);

// False: no step was observed, or the file is damaged and its step may not be whole.
bool has_step_operations(const Trace& trace);
// Why it is false, and what to do then.
Error why_no_step(const Trace& trace);
// Derived once, by follow() (src/predict/predict.cc); everything else reads Facts::step. Throws why_no_step().
StepOperations step_operations(const Trace& trace);

}  // namespace gpucast
