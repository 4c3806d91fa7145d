// The state of the process: has it used CUDA, and is it a fork? Internal to the core.
#pragma once

namespace gpucast::vgpu {

// Every entry that counts as a use of CUDA calls this (profile() does). The first call installs the fork handlers.
void touch();
bool used();
// True in a child whose parent had a CUDA context before the fork. Such a child counts its memory but has no log. (On a real card it can do
// nothing with CUDA. A parent that only queried the card leaves its children free to use it.)
bool forked_after_use();

// Locks held during a fork, so that the child's copy of the state is consistent. Each core file with a lock has a pair.
void lock_log(), unlock_log(), reset_log_in_child();
void lock_pools(), unlock_pools();
void lock_memory(), unlock_memory();
void lock_host_memory(), unlock_host_memory();
void lock_contents(), unlock_contents();
void lock_values(), unlock_values();
void lock_numbers(), unlock_numbers();
void lock_streams(), unlock_streams();
void lock_functions(), unlock_functions();

}  // namespace gpucast::vgpu
