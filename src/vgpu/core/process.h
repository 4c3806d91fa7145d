// What the process has done so far: used or not, forked or not. Internal to the core.
#pragma once

namespace gpucast::vgpu {

// Every entry that counts as use of CUDA passes here (profile() among them): installs the fork handlers, once.
void touch();
bool used();
// True in a child whose parent had a CUDA context before the fork: it keeps its books, but has no log. (On a real card
// such a child can do nothing with CUDA. A parent that only asked about the card leaves its children free to use it.)
bool forked_after_use();

// Held while forking, so that the child's copy of the state is whole. In core files that have a lock.
void lock_log(), unlock_log(), reset_log_in_child();
void lock_pools(), unlock_pools();
void lock_memory(), unlock_memory();
void lock_host_memory(), unlock_host_memory();
void lock_contents(), unlock_contents();
void lock_streams(), unlock_streams();
void lock_functions(), unlock_functions();

}  // namespace gpucast::vgpu
