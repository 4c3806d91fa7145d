// Which PyTorch operator each thread runs, with its arguments: a run with a clock times an operator's kernels by it. PyTorch calls us at
// the begin and the end of each operator (at::RecordFunction). Internal to the core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/vgpu/core/core.h"

namespace gpucast::vgpu {

// The innermost operator of the calling thread.
struct RunningOperator {
  uint64_t call = 0;         // differs between calls; 0: no operator runs
  std::string_view written;  // its name and arguments, for operator_text(); valid until the operator ends
};
RunningOperator running_operator();

// "aten::add [{"float32": [[2, 3], [3, 1]]}, 1]": the name, and the arguments as in lines "operator_kind" of a capture.
std::string operator_text(std::string_view written);

// For tests: as if PyTorch began and ended an operator.
void begin_operator(const void* record, std::string_view written);
void end_operator(const void* record);

}  // namespace gpucast::vgpu

extern "C" {
// Where PyTorch's structures keep what we read. python/gpucast/operator_layout.py finds it out. Offsets in bytes.
struct gpucast_vgpu_operator_layout {
  uint32_t inputs;                                          // in at::RecordFunction: a pointer to values and their number
  uint32_t tensor_tag, integer_tag, boolean_tag, list_tag;  // of c10::IValue: 8 bytes of payload, then the tag
  uint32_t list_values;                                     // in a list: pointers to its first value and to the end of its last
  uint32_t storage, offset;                                 // in c10::TensorImpl: its storage's address; where it begins in it
  uint32_t sizes;                                           // in c10::TensorImpl: the number of dimensions, then sizes and strides
  uint32_t type, keys;                                      // in c10::TensorImpl: its element type's number; its dispatch keys
  uint32_t memory;                                          // in c10::StorageImpl: where its memory begins
  uint64_t cpu_key, cuda_key, plain_keys;                   // plain: a tensor with no other keys keeps its sizes itself
  char type_names[64][24];                                  // by number; "": unknown
  uint8_t whole_bytes[64];                                  // by number: of an element, for whole numbers and conditions; 0: others
};
// Follows the operators of all threads from now on. `add_callback`: at::addGlobalCallback. `name`: at::RecordFunction::name. Without a
// layout, `probe` is called instead at the begin of each operator of this thread. Returns PyTorch's handle of the callback; 0: failed.
GPUCAST_VGPU_API uint64_t gpucast_vgpu_watch_operators(void* add_callback, void* name, const gpucast_vgpu_operator_layout* layout,
                                                       void (*probe)(const void* record, const char* name));
// The text of the last operator that this thread began, for a check of the layout; nullptr: no more checks. Returns its size; `text` gets
// the first `size_bytes` bytes.
GPUCAST_VGPU_API size_t gpucast_vgpu_last_operator(char* text, size_t size_bytes);
}
