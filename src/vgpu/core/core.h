// The virtual GPU's shared core: everything the libraries of src/vgpu/libs have in common.
//
// libgpucast_vgpu_core.so holds the one state of a process (device profile, device memory, log). The libraries with
// NVIDIA's names (libs/*.cc) translate their own API to the calls below and keep no state that another one needs.
// Nothing happens before the first call: a process that loads the libraries and never uses CUDA leaves no trace.
//
// Every function is safe to call from several threads and never throws. After fork() the child of a process with a CUDA
// context starts with an empty log that it does not write (it must not touch its parent's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "src/occupancy/kernel_resources.h"

#define GPUCAST_VGPU_API __attribute__((visibility("default")))

namespace gpucast::vgpu {

// What the virtual card says of itself. Read once, at the first call, from the file named by GPUCAST_VGPU_PROFILE:
// one `key = value` a line, keys as the fields below, `#` a comment. Without that variable: an A100-SXM4-80GB.
struct DeviceProfile {
  char name[128];                    // as cudaDeviceProp.name, e.g. "NVIDIA GeForce RTX 3060"
  int compute_major, compute_minor;  // compute capability
  int multiprocessors;
  uint64_t total_memory_bytes;  // as cudaDeviceProp.totalGlobalMem
  uint64_t context_bytes;       // taken by the CUDA context before the first cudaMalloc
  uint64_t capacity_bytes;      // what cudaMalloc and friends can hand out in all when enforce_capacity
  int enforce_capacity;         // 0: allocation never fails; 1: cudaErrorMemoryAllocation beyond capacity_bytes
  int devices;                  // how many cards of this kind the machine has (devices.h)
  uint64_t l2_bytes;
  int memory_bus_width_bits, memory_clock_khz, clock_khz;
  int shared_memory_per_block_bytes, shared_memory_per_block_optin_bytes, shared_memory_per_multiprocessor_bytes;
  int registers_per_multiprocessor, max_threads_per_multiprocessor, max_blocks_per_multiprocessor;
  int driver_version;   // as cuDriverGetVersion: 13000
  int runtime_version;  // as cudaRuntimeGetVersion: 12040, 13000
  int cudnn_version;    // as cudnnGetVersion: 90100 (9.1.0)
  int cublas_version;   // as cublasGetVersion: 120405
  int nccl_version;     // as ncclGetVersion: 22105
  int cusparselt_version, cufft_version, cusolver_version, cusparse_version, curand_version, cupti_version;
  char driver_version_text[32];  // as nvmlSystemGetDriverVersion: "580.95.05"
  int ascending_addresses;       // 1: for tests of allocators, see below
  int clock;                     // clock.h: 0 none, 1 the host waits for the card, 2 the host's time is set forward
  char clock_socket[108];        // where `gpucast run` answers how long a launch takes
  // What a launch costs the host more with NVIDIA's driver, and the time from a launch to its kernel's start on an idle card.
  int clock_call_ns, clock_latency_ns;
  // The user's own cuDNN, to ask what it would choose on this card (libs/cudnn_ask.h). "": not asked.
  char cudnn_library[1024];  // its libcudnn.so.9
  char cudnn_asked[32];      // its version: "9.24.1"
  char cudnn_answers[1024];  // a file for its answers; "": not kept
};
GPUCAST_VGPU_API const DeviceProfile& profile();

// Whether a device's context exists: once something beyond questions about it was asked for.
GPUCAST_VGPU_API bool context_active(int device);
GPUCAST_VGPU_API void context_activate_on(int device);
GPUCAST_VGPU_API void context_activate();  // of the calling thread's current device (devices.h), as all calls below that name none

// ---- Device memory -------------------------------------------------------------------------------------------------
// Addresses lie in ranges reserved with PROT_NONE, so a stray access from the host faults. Device memory is counted in
// steps of 2 MiB. Placement follows Linux drivers (see src/base/address_space.h): ranges of 32 MiB, each below the last; an
// allocation takes the lowest place in a reserved range where it fits. With ascending_addresses an allocation lies right
// above all others that live (from 0x200000000000; reserved ranges from 0x300000000000), and no gap is filled.

enum class Status { ok, out_of_memory, invalid_value };

GPUCAST_VGPU_API Status device_alloc(size_t size_bytes, uint64_t* address);  // cudaMalloc
GPUCAST_VGPU_API Status device_alloc_on(int device, size_t size_bytes, uint64_t* address);
GPUCAST_VGPU_API Status device_free(uint64_t address);  // invalid_value: not an allocation's start

// Virtual memory management (expandable segments): a range of addresses, physical memory, and the mapping of one on the other.
GPUCAST_VGPU_API Status address_reserve(size_t size_bytes, size_t alignment_bytes, uint64_t* address);
GPUCAST_VGPU_API Status address_release(uint64_t address, size_t size_bytes);
GPUCAST_VGPU_API Status physical_create(int device, size_t size_bytes, uint64_t* handle);  // counts against the capacity
GPUCAST_VGPU_API int physical_device_of(uint64_t handle);                                  // -1: no such memory
GPUCAST_VGPU_API Status physical_release(uint64_t handle);                                 // returned once it is unmapped too
GPUCAST_VGPU_API Status physical_map(uint64_t address, size_t size_bytes, uint64_t handle);
GPUCAST_VGPU_API Status physical_unmap(uint64_t address, size_t size_bytes);

struct MemoryInfo {
  uint64_t total_bytes;      // of the card
  uint64_t free_bytes;       // 0 at least, also when an uncapped run has handed out more than the card has
  uint64_t allocated_bytes;  // handed out now, in 2 MiB steps
  uint64_t peak_bytes;       // the highest allocated_bytes so far
};
GPUCAST_VGPU_API MemoryInfo memory_info(int device);
GPUCAST_VGPU_API MemoryInfo memory_info();

struct Range {
  uint64_t address;
  size_t size_bytes;
  int device = 0;  // of device memory
};
// The allocation or mapping that holds `address`; false when it is no device memory.
GPUCAST_VGPU_API bool find_device_range(uint64_t address, Range* range);

// ---- Host memory known to CUDA (pinned, registered) ------------------------------------------------------------------
GPUCAST_VGPU_API void* host_alloc(size_t size_bytes);  // page-aligned and zeroed; nullptr when the machine has none left
GPUCAST_VGPU_API Status host_free(void* pointer);
GPUCAST_VGPU_API Status host_register(void* pointer, size_t size_bytes);
GPUCAST_VGPU_API Status host_unregister(void* pointer);
GPUCAST_VGPU_API bool find_host_range(const void* pointer, Range* range);

// ---- Contents ---------------------------------------------------------------------------------------------------------
constexpr size_t kSmallCopyBytes = 64 << 10;
// Device memory reads as zeros, but for small copies (64 KiB or less) from the host, kept until a kernel may have
// written over them: DDP and others compare small host values after a collective. `kind` as in cudaMemcpyKind
// (1 host to device, 2 device to host, 3 device to device); also logs it.
GPUCAST_VGPU_API void copy(void* to, const void* from, size_t size_bytes, int kind, uint64_t stream);
GPUCAST_VGPU_API void fill(uint64_t address, int byte, size_t size_bytes, uint64_t stream);
// The same with values of 1, 2 or 4 bytes.
GPUCAST_VGPU_API void fill_pattern(uint64_t address, unsigned value, size_t value_bytes, size_t count, uint64_t stream);
// A kernel or library call may have written anywhere: forget what small copies left.
GPUCAST_VGPU_API void device_written();
// Small contents that survive, e.g. for a collective that must add them. How many bytes are known; the others are zeros.
GPUCAST_VGPU_API size_t read_small(uint64_t address, void* to, size_t size_bytes);
GPUCAST_VGPU_API void write_small(uint64_t address, const void* from, size_t size_bytes);
// Contents that a collective brings. Asked for when the host, or an operation that needs them, reads them, and only then: `later` may
// wait for other processes. It fills in the bytes; false: not known.
using Later = std::function<bool(unsigned char* bytes)>;
GPUCAST_VGPU_API void write_later(uint64_t address, size_t size_bytes, Later later);
// A launched kernel has written. The few integer kernels with which PyTorch handles sizes of objects are carried out on contents that are
// known (kernel_values.cc); after any other, contents are forgotten. `arguments` as in cudaLaunchKernel.
GPUCAST_VGPU_API void kernel_written(const char* name, const unsigned grid[3], const void* const* arguments);

// ---- Log ----------------------------------------------------------------------------------------------------------------
// Lines of the capture file (docs/reference/capture-format.md, section "Virtual GPU"), kept in memory until
// gpucast_vgpu_write_log().

// Says once per name that a call has no answer; returns the library's own "not supported" code
// (library: "cudart", "cublas", ... as in src/vgpu/symbols).
GPUCAST_VGPU_API int not_supported(const char* library, const char* name);
using gpucast::KernelResources;  // no registers: not known
GPUCAST_VGPU_API void log_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                                 uint64_t stream, const KernelResources& resources = {}, std::span<const uint64_t> pointers = {},
                                 bool driver = false, const void* function = nullptr);
// A library call that would launch kernels: name as called, arguments as a JSON object's text, e.g. {"m":1024,"n":8}.
GPUCAST_VGPU_API void log_call(const char* library, const char* name, const char* arguments_json, uint64_t stream);
// Something that the report's reader should know, as a record of the capture.
GPUCAST_VGPU_API void log_warning(const char* code, const char* message);
// Device memory that PyTorch hands to a library as scratch space (cublasSetWorkspace, cuDNN plans, ...).
GPUCAST_VGPU_API void log_workspace(const char* library, uint64_t address, size_t size_bytes);
// Memory that a library would take from the device itself, not through PyTorch's allocator (a cuBLAS handle's own
// workspace, NCCL's buffers). Counted against the capacity and named in the ledger.
GPUCAST_VGPU_API Status library_memory(const char* library, const char* what, int64_t size_bytes);

}  // namespace gpucast::vgpu

// ---- For tests (ctypes) ------------------------------------------------------------------------------------------------
// Work that takes long. What is submitted to a held stream is over only once something waits for it: a synchronize of the stream,
// of an event behind it or of the device, cudaFree. What is submitted after that is held again, until gpucast_vgpu_finish_stream.
// Work elsewhere is over at once, unless it waits for held work. Both return CUDA's code.
extern "C" {
GPUCAST_VGPU_API int gpucast_vgpu_hold_stream(uint64_t stream);
GPUCAST_VGPU_API int gpucast_vgpu_finish_stream(uint64_t stream);
}

// ---- For the capture layer (ctypes) -----------------------------------------------------------------------------------
extern "C" {
GPUCAST_VGPU_API void gpucast_vgpu_mark(int64_t sequence);  // aligns the log with the allocator's history
GPUCAST_VGPU_API int gpucast_vgpu_used();                   // 1 once any CUDA call was made
// What happened on one device, and what is not of one device. 0, or errno.
GPUCAST_VGPU_API int gpucast_vgpu_write_log(const char* path, int device);
// The devices that memory was taken from, in the order in which they were first used; valid until the process ends.
struct gpucast_vgpu_devices_used {
  int32_t count;
  int32_t device[64];
};
GPUCAST_VGPU_API const gpucast_vgpu_devices_used* gpucast_vgpu_used_devices();
// From here on a file holds what the program takes from the first device it uses, also when it is killed. 0, or errno. Layout:
// memory_log.cc.
GPUCAST_VGPU_API int gpucast_vgpu_keep_memory_log(const char* path);
// The saved state of a random number generator of PyTorch's for the host, as if so many 32-bit numbers had been drawn. -1: it is none.
GPUCAST_VGPU_API int gpucast_vgpu_skip_random(void* state, uint64_t size_bytes, uint64_t draws);
// Of the calling thread. What its next reads from the card of 8 bytes or fewer say, one each, the last for all further ones, where what
// is read is not known; 0 values: zeros again. And whether what it read last was known.
GPUCAST_VGPU_API void gpucast_vgpu_answer_reads(const int64_t* values, int count);
GPUCAST_VGPU_API int gpucast_vgpu_read_known();
// A mask at this address has so many elements that are not zero: what a later nonzero of it, in whichever thread, finds.
GPUCAST_VGPU_API void gpucast_vgpu_note_count(uint64_t address, int64_t count);
// Called when a thread that has no such answer reads how long a result is (nonzero, unique, a size that is a tensor) and it is not known.
// nullptr: never.
GPUCAST_VGPU_API void gpucast_vgpu_on_unknown_count(void (*callback)());
// Called when a thread that has no such answer reads one byte that is not known: returns what it says, 0 or 1. nullptr: 0.
GPUCAST_VGPU_API void gpucast_vgpu_on_unknown_condition(int (*callback)());
// How often the host has copied more than a number (8 bytes) to the card.
GPUCAST_VGPU_API uint64_t gpucast_vgpu_uploads();
GPUCAST_VGPU_API void gpucast_vgpu_hold(int supervisor_pid);  // never returns: waits to be killed; exits when the supervisor is gone
}
