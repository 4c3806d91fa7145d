// The virtual GPU's shared core: what the libraries of src/vgpu/libs have in common.
//
// libgpucast_vgpu_core.so holds all state that libraries share (device profile, device memory, log), once per process. The libraries with
// NVIDIA's names (libs/*.cc) translate their own API to the calls below. State of their own is private to each. Nothing happens before the
// first call: a process that loads the libraries and never uses CUDA leaves no trace.
//
// Every function may be called from several threads and never throws. After fork() the child of a process with a CUDA context starts with
// an empty log, which it does not write (it must not touch its parent's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/occupancy/kernel_resources.h"

#define GPUCAST_VGPU_API __attribute__((visibility("default")))

namespace gpucast::vgpu {

// The properties of the virtual card. Read once, at the first call, from the file named by GPUCAST_VGPU_PROFILE: one `key = value` a line,
// keys as the fields below, `#` a comment. Without that variable: an A100-SXM4-80GB.
struct DeviceProfile {
  char name[128];                    // as cudaDeviceProp.name, e.g. "NVIDIA GeForce RTX 3060"
  int compute_major, compute_minor;  // compute capability
  int multiprocessors;
  uint64_t total_memory_bytes;  // as cudaDeviceProp.totalGlobalMem
  uint64_t context_bytes;       // used by the CUDA context before the first cudaMalloc
  uint64_t capacity_bytes;      // if enforce_capacity: the total that cudaMalloc and similar calls can allocate
  int enforce_capacity;         // 0: allocation never fails; 1: cudaErrorMemoryAllocation beyond capacity_bytes
  int devices;                  // the number of cards in the machine, all of this kind (devices.h)
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
  int clock;                     // clock.h: 0 none, 1 the host really waits for the card, 2 the host's time is set forward
  char clock_socket[108];        // the socket where `gpucast run` answers how long a launch takes
  // The extra cost of a launch on the host with NVIDIA's driver; the time from a launch to its kernel's start on an idle card; a stream's
  // time for an event that keeps its time.
  int clock_call_ns, clock_latency_ns, clock_event_ns;
  int clock_yardstick_ns;  // yardstick_ns() on the host of a card (host_speed.h)
  // The user's own cuDNN, which answers what it would choose on this card (libs/cudnn_ask.h). "": gpucast does not ask it.
  char cudnn_library[1024];  // its libcudnn.so.9
  char cudnn_asked[32];      // its version: "9.24.1"
  char cudnn_answers[1024];  // the file that keeps its answers; "": they are not kept
};
GPUCAST_VGPU_API const DeviceProfile& profile();

// Whether a device's context exists. The first call that does more than query the device creates it.
GPUCAST_VGPU_API bool context_active(int device);
GPUCAST_VGPU_API void context_activate_on(int device);
GPUCAST_VGPU_API void context_activate();  // for the calling thread's current device (devices.h), as in all calls below that name no device

// ---- Device memory -------------------------------------------------------------------------------------------------
// Addresses lie in ranges reserved with PROT_NONE, so a stray access from the host faults. Device memory is counted in steps of 2 MiB.
// Placement follows Linux drivers (see src/base/address_space.h): ranges of 32 MiB, each below the last one. An allocation takes the lowest
// gap in a reserved range where it fits. With ascending_addresses an allocation lies directly above all other live ones (from
// 0x200000000000; reserved ranges from 0x300000000000), and no gap is filled.

enum class Status { ok, out_of_memory, invalid_value };

GPUCAST_VGPU_API Status device_alloc(size_t size_bytes, uint64_t* address);  // cudaMalloc
GPUCAST_VGPU_API Status device_alloc_on(int device, size_t size_bytes, uint64_t* address);
GPUCAST_VGPU_API Status device_free(uint64_t address);  // invalid_value: no allocation starts there

// Virtual memory management (expandable segments): reserved addresses, physical memory, and mappings from one to the other.
GPUCAST_VGPU_API Status address_reserve(size_t size_bytes, size_t alignment_bytes, uint64_t* address);
GPUCAST_VGPU_API Status address_release(uint64_t address, size_t size_bytes);
GPUCAST_VGPU_API Status physical_create(int device, size_t size_bytes, uint64_t* handle);  // counts against the capacity
// Memory of another process, on a card that is not ours: it does not count.
GPUCAST_VGPU_API Status physical_import(int device, size_t size_bytes, uint64_t* handle);
GPUCAST_VGPU_API bool is_of_another_process(uint64_t address);
constexpr int kCopyBetweenCards = 10;                       // cudaMemcpyKind ends at 4; CUPTI's number
GPUCAST_VGPU_API int physical_device_of(uint64_t handle);   // -1: no such memory
GPUCAST_VGPU_API size_t physical_size_of(uint64_t handle);  // 0: no such memory
GPUCAST_VGPU_API Status physical_release(uint64_t handle);  // freed once it is also unmapped
GPUCAST_VGPU_API Status physical_map(uint64_t address, size_t size_bytes, uint64_t handle);
GPUCAST_VGPU_API Status physical_unmap(uint64_t address, size_t size_bytes);

struct MemoryInfo {
  uint64_t total_bytes;      // of the card
  uint64_t free_bytes;       // never below 0, although a run without enforce_capacity may allocate more than the card has
  uint64_t allocated_bytes;  // allocated now, in steps of 2 MiB
  uint64_t peak_bytes;       // the highest allocated_bytes so far
};
GPUCAST_VGPU_API MemoryInfo memory_info(int device);
GPUCAST_VGPU_API MemoryInfo memory_info();

struct Range {
  uint64_t address;
  size_t size_bytes;
  int device = 0;  // for device memory
};
// Finds the allocation or mapping that contains `address`. False: it is not device memory.
GPUCAST_VGPU_API bool find_device_range(uint64_t address, Range* range);

// ---- Host memory known to CUDA (pinned, registered) ------------------------------------------------------------------
GPUCAST_VGPU_API void* host_alloc(size_t size_bytes);  // page-aligned and zeroed; nullptr: the machine has no memory left
GPUCAST_VGPU_API Status host_free(void* pointer);
GPUCAST_VGPU_API Status host_register(void* pointer, size_t size_bytes);
GPUCAST_VGPU_API Status host_unregister(void* pointer);
GPUCAST_VGPU_API bool find_host_range(const void* pointer, Range* range);

// ---- Contents ---------------------------------------------------------------------------------------------------------
constexpr size_t kSmallCopyBytes = 64 << 10;
// Device memory reads as zeros, except for small copies (64 KiB or less) from the host. They are kept until a kernel may have overwritten
// them: DDP and others compare small host values after a collective. `kind` as in cudaMemcpyKind (1 host to device, 2 device to host, 3
// device to device). The call also logs the copy.
GPUCAST_VGPU_API void copy(void* to, const void* from, size_t size_bytes, int kind, uint64_t stream);
GPUCAST_VGPU_API void fill(uint64_t address, int byte, size_t size_bytes, uint64_t stream);
// The same for a fill with values of 1, 2 or 4 bytes.
GPUCAST_VGPU_API void fill_pattern(uint64_t address, unsigned value, size_t value_bytes, size_t count, uint64_t stream);
// A kernel or library call may have written anywhere: forgets the contents of small copies.
GPUCAST_VGPU_API void device_written();
// Small contents that survive such writes, e.g. for a collective that must add them. Returns the number of known bytes; the others are
// zeros.
GPUCAST_VGPU_API size_t read_small(uint64_t address, void* to, size_t size_bytes);
GPUCAST_VGPU_API void write_small(uint64_t address, const void* from, size_t size_bytes);
// Contents that a collective brings. `later` is called only when the host, or an operation that needs the bytes, reads them. It may wait
// for other processes. It fills in the bytes; false: they are not known.
using Later = std::function<bool(unsigned char* bytes)>;
GPUCAST_VGPU_API void write_later(uint64_t address, size_t size_bytes, Later later);
// A launched kernel has written. If the contents are known, the few integer kernels that PyTorch uses for the sizes of objects are computed
// here (kernel_values.cc). After any other kernel, contents are forgotten. `arguments` as in cudaLaunchKernel.
GPUCAST_VGPU_API void kernel_written(const char* name, const unsigned grid[3], const void* const* arguments);

// ---- Log ----------------------------------------------------------------------------------------------------------------
// Lines of the capture file (docs/reference/capture-format.md, section "Virtual GPU"), kept in memory until
// gpucast_vgpu_write_log().

// Logs, once for each name, that a call has no answer. Returns the library's own "not supported" code (library: "cudart", "cublas", ... as
// in src/vgpu/symbols).
GPUCAST_VGPU_API int not_supported(const char* library, const char* name);
using gpucast::KernelResources;  // no registers: not known
struct LaunchValues;
// The PTX that a module's machine code was made from. It is never freed.
struct KernelCode {
  uint32_t number;
  uint64_t hash;  // of the text
  std::string ptx;
};
// What is known of a launch of a module's kernel: arguments that may be device addresses, and the bytes of all arguments in the kernel's
// own layout.
struct CompiledLaunch {
  std::span<const uint64_t> pointers;
  std::string_view parameters;
  const KernelCode* code = nullptr;                                  // nullptr: not known
  std::span<const std::shared_ptr<const LaunchValues>> values = {};  // that the pointers lead to
};
GPUCAST_VGPU_API void log_kernel(const char* name, const unsigned grid[3], const unsigned block[3], size_t dynamic_shared_bytes,
                                 uint64_t stream, const KernelResources& resources = {}, const CompiledLaunch& compiled = {},
                                 bool driver = false, const void* function = nullptr);
// A library call that would launch kernels: the name as called, the arguments as the text of a JSON object, e.g. {"m":1024,"n":8}.
GPUCAST_VGPU_API void log_call(const char* library, const char* name, const char* arguments_json, uint64_t stream);
// A warning for the reader of the report, as a record of the capture.
GPUCAST_VGPU_API void log_warning(const char* code, const char* message);
// Device memory that PyTorch hands to a library as scratch space (cublasSetWorkspace, cuDNN plans, ...).
GPUCAST_VGPU_API void log_workspace(const char* library, uint64_t address, size_t size_bytes);
// Memory that a library allocates directly on the device, not through PyTorch's allocator (a cuBLAS handle's own workspace, NCCL's
// buffers). It counts against the capacity, and the ledger names it.
GPUCAST_VGPU_API Status library_memory(const char* library, const char* what, int64_t size_bytes);

}  // namespace gpucast::vgpu

// ---- For tests (ctypes) ------------------------------------------------------------------------------------------------
// Simulates long work. Work that is submitted to a held stream is done only after something waits for it: a synchronize of the stream, of a
// later event or of the device, or cudaFree. Work submitted after that is held again, until gpucast_vgpu_finish_stream. Work on other
// streams is done at once, unless it waits for held work. Both functions return CUDA's code.
extern "C" {
GPUCAST_VGPU_API int gpucast_vgpu_hold_stream(uint64_t stream);
GPUCAST_VGPU_API int gpucast_vgpu_finish_stream(uint64_t stream);
}

// ---- For the capture layer (ctypes) -----------------------------------------------------------------------------------
extern "C" {
GPUCAST_VGPU_API void gpucast_vgpu_mark(int64_t sequence);  // aligns the log with the allocator's history
GPUCAST_VGPU_API int gpucast_vgpu_used();                   // 1 once any CUDA call was made
// Writes the log of one device, and the records that belong to no device. 0, or errno.
GPUCAST_VGPU_API int gpucast_vgpu_write_log(const char* path, int device);
// CPU time of the threads that have submitted work so far, less what was left out.
GPUCAST_VGPU_API int64_t gpucast_vgpu_issuing_cpu_ns();
GPUCAST_VGPU_API void gpucast_vgpu_leave_out_cpu(int64_t ns);
// From here on this time is sampled at every 8th piece of work. Returns the number of samples since the last call, and writes them.
GPUCAST_VGPU_API int64_t gpucast_vgpu_sample_cpu(int64_t* samples_ns, int64_t most);
// The user's code has ended, so other ranks need not wait for this one.
GPUCAST_VGPU_API void gpucast_vgpu_leave_ranks();
// The devices on which memory was allocated, in the order of first use. The pointer stays valid until the process ends.
struct gpucast_vgpu_devices_used {
  int32_t count;
  int32_t device[64];
};
GPUCAST_VGPU_API const gpucast_vgpu_devices_used* gpucast_vgpu_used_devices();
// Keeps a file with the allocations on the first used device, from now on; it survives a killed process. 0, or errno. memory_log.cc
// describes the layout.
GPUCAST_VGPU_API int gpucast_vgpu_keep_memory_log(const char* path);
// Advances the saved state of a PyTorch random number generator for the host by `draws` 32-bit numbers. -1: not such a state.
GPUCAST_VGPU_API int gpucast_vgpu_skip_random(void* state, uint64_t size_bytes, uint64_t draws);
// For the calling thread: values for its next reads of 8 bytes or fewer from the card whose contents are unknown. Each read gets one value,
// and the last value serves all further reads. 0 values: zeros again. The second function says whether the contents of the last read were
// known.
GPUCAST_VGPU_API void gpucast_vgpu_answer_reads(const int64_t* values, int count);
GPUCAST_VGPU_API int gpucast_vgpu_read_known();
// The mask at this address has `count` nonzero elements: the answer for a later nonzero() of it, in any thread.
GPUCAST_VGPU_API void gpucast_vgpu_note_count(uint64_t address, int64_t count);
// The callback is called when a thread without an answer reads the unknown length of a result (nonzero, unique, a size that is a tensor).
// nullptr: no callback.
GPUCAST_VGPU_API void gpucast_vgpu_on_unknown_count(void (*callback)());
// The callback is called when a thread without an answer reads one unknown byte; it returns the byte, 0 or 1. nullptr: reads give 0.
GPUCAST_VGPU_API void gpucast_vgpu_on_unknown_condition(int (*callback)());
// How many copies from the host to the card were larger than a number (8 bytes).
GPUCAST_VGPU_API uint64_t gpucast_vgpu_uploads();
// `ptx` is the text that this machine code was made from. Call before the module is loaded.
GPUCAST_VGPU_API void gpucast_vgpu_note_code(const void* image, uint64_t size_bytes, const char* ptx, uint64_t ptx_bytes);
// The bytes that a kernel of the card has written, or would have: for counting what compiled kernels do with them. nullptr: they are not
// known.
GPUCAST_VGPU_API void gpucast_vgpu_note_values(uint64_t address, const void* bytes, uint64_t size_bytes);
// Writes what is known from `address` on to `to`, at most `size_bytes`. Returns the number of bytes.
GPUCAST_VGPU_API uint64_t gpucast_vgpu_known_values(uint64_t address, void* to, uint64_t size_bytes);
GPUCAST_VGPU_API void gpucast_vgpu_hold(int supervisor_pid);  // never returns: waits to be killed; exits when the supervisor is gone
}
