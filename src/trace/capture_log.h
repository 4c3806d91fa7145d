// Events of the virtual GPU's log: memory, and in the observed step the work and the order of its streams.
#pragma once

#include "src/trace/capture_json.h"
#include "src/trace/capture_reading.h"

namespace gpucast::capture {

// `elements`: the event's elements after its name. Each function returns the part that it could not read; nullptr: all was read.
const char* read_vgpu_mark(Reading& reading, Elements& elements);
const char* read_workspace(Reading& reading, Elements& elements);
const char* read_device_alloc(Reading& reading, Elements& elements);
const char* read_device_free(Reading& reading, Elements& elements);
const char* read_library_memory(Reading& reading, Elements& elements);
const char* read_kernel_code(Reading& reading, Elements& elements);
const char* read_kernel_name(Reading& reading, Elements& elements);
const char* read_values(Reading& reading, Elements& elements);
const char* read_thread(Reading& reading, Elements& elements);
const char* read_arguments(Reading& reading, Elements& elements);
const char* read_captured(Reading& reading, Elements& elements);

// Work. Lines before and after the observed step have no times in older captures, and are not read.
const char* read_kernel(Reading& reading, Elements& elements);
const char* read_call(Reading& reading, Elements& elements);
const char* read_memcpy(Reading& reading, Elements& elements);
const char* read_memset(Reading& reading, Elements& elements);

// Records of events and waits for them. These are read from the capture's begin on, since a step may wait for an event of the step before.
const char* read_event_record(Reading& reading, Elements& elements);
const char* read_stream_wait(Reading& reading, Elements& elements);
const char* read_host_wait(Reading& reading, Elements& elements);
const char* read_graph(Reading& reading, Elements& elements);

// Counts the convolutions of a cuDNN call in any step. `elements`: from the event's name on.
const char* read_convolutions(Reading& reading, Elements& elements);

}  // namespace gpucast::capture
