// Events of a capture's history: the allocator's, marks, tensors, and the operators of the observed step.
#pragma once

#include "src/trace/capture_json.h"
#include "src/trace/capture_reading.h"

namespace gpucast::capture {

// `elements`: of the event, after its name. Each returns what it could not read; nullptr: nothing is wrong.
const char* read_allocator_event(Reading& reading, EventKind kind, Elements& elements);
const char* read_mark(Reading& reading, Elements& elements);
const char* read_tensor(Reading& reading, Elements& elements);
const char* read_operator_kind(Reading& reading, Elements& elements);
const char* read_operator_call(Reading& reading, Elements& elements);

}  // namespace gpucast::capture
