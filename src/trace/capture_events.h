// Events of a capture's history: the allocator's, marks, tensors, and the operators of the observed step.
#pragma once

#include "src/trace/capture_json.h"
#include "src/trace/capture_reading.h"

namespace gpucast::capture {

// `elements`: the event's elements after its name. Each function returns the part that it could not read; nullptr: all was read.
const char* read_allocator_event(Reading& reading, EventKind kind, Elements& elements);
const char* read_mark(Reading& reading, Elements& elements);
const char* read_tensor(Reading& reading, Elements& elements);
const char* read_operator_kind(Reading& reading, Elements& elements);
const char* read_operator_call(Reading& reading, Elements& elements);

}  // namespace gpucast::capture
