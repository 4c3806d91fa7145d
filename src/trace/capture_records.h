// Records of a capture: its header, the process, its ends, and their details.
#pragma once

#include "src/trace/capture_json.h"
#include "src/trace/capture_reading.h"

namespace gpucast::capture {

void read_header(Reading& reading, od::object object);  // throws Error when schema_version is newer or missing
void read_process(Reading& reading, od::object object);
void read_eof(Reading& reading, od::object object);
void read_stack(Reading& reading, od::object object);
void read_module(Reading& reading, od::object object);
void read_observed_step(Reading& reading, od::object object);
void read_clock(Reading& reading, od::object object);
void read_loader_record(Reading& reading, od::object object);
void read_communicators(Reading& reading, od::object object);
void read_holders(Reading& reading, od::object object);
void read_unobserved_steps(Reading& reading, od::object object);
void read_warning(Reading& reading, od::object object);
void read_unsupported(Reading& reading, od::object object);
void read_end(Reading& reading, od::object object);
void read_command_end(Reading& reading, od::object object);
void read_vgpu_end(Reading& reading, od::object object);

}  // namespace gpucast::capture
