// Events of the virtual GPU's log: memory, and in the observed step the work and what orders it.
#pragma once

#include "src/trace/capture_json.h"
#include "src/trace/capture_reading.h"

namespace gpucast::capture {

// `elements`: of the event, after its name. Each returns what it could not read; nullptr: nothing is wrong.
const char* read_vgpu_mark(Reading& reading, Elements& elements);
const char* read_workspace(Reading& reading, Elements& elements);
const char* read_device_alloc(Reading& reading, Elements& elements);
const char* read_device_free(Reading& reading, Elements& elements);
const char* read_library_memory(Reading& reading, Elements& elements);
const char* read_kernel_name(Reading& reading, Elements& elements);
const char* read_thread(Reading& reading, Elements& elements);
const char* read_captured(Reading& reading, Elements& elements);

// Work. Lines before and after the observed step have no times in older captures, and are not read.
const char* read_kernel(Reading& reading, Elements& elements);
const char* read_call(Reading& reading, Elements& elements);
const char* read_memcpy(Reading& reading, Elements& elements);
const char* read_memset(Reading& reading, Elements& elements);

// What orders streams. Events count from the capture's begin on, since a step may wait for one of the step before.
const char* read_event_record(Reading& reading, Elements& elements);
const char* read_stream_wait(Reading& reading, Elements& elements);
const char* read_host_wait(Reading& reading, Elements& elements);
const char* read_graph(Reading& reading, Elements& elements);

// A call of cuDNN, of any step: counts its convolutions. `elements`: with the event's name.
const char* read_convolutions(Reading& reading, Elements& elements);

}  // namespace gpucast::capture
