#include "src/attribution/communication.h"

#include <algorithm>
#include <string_view>

namespace gpucast {
namespace {

struct Place {
  std::string_view file;      // a part of the path
  std::string_view function;  // "": any
};

// PyTorch 2.0 to 2.14, DeepSpeed 0.14 to 0.18.
constexpr Place kPlaces[] = {
    {"torch/nn/parallel/distributed.py", "_ddp_init_helper"},  // the reducer's buckets,
    {"torch/nn/parallel/distributed.py", "_pre_forward"},      // and new ones after the first step
    {"torch/distributed/utils.py", "_alloc_storage"},          // FSDP's flat parameters, gathered
    {"torch/distributed/fsdp/_runtime_utils.py", "_get_reduce_scatter_tensors"},
    {"torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", ""},
    {"torch/distributed/fsdp/_fully_shard/_fsdp_common.py", ""},
    {"torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "alloc_storage"},
    {"torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "init_all_gather_outputs"},
    {"torch/distributed/_composable/fsdp/_fsdp_collectives.py", ""},  // the same before 2.6
    {"torch/distributed/_composable/fsdp/_fsdp_param.py", "alloc_storage"},
    {"torch/distributed/_composable/fsdp/_fsdp_param.py", "init_all_gather_outputs"},
    {"torch/distributed/distributed_c10d.py", ""},
    {"torch/distributed/pipelining/", ""},
    {"deepspeed/runtime/zero/", ""},
    {"deepspeed/runtime/comm/", ""},
    {"deepspeed/comm/", ""},
};

// These functions only forward requests of other code.
bool passes_on(std::string_view file) {
  constexpr std::string_view kTorch = "torch/";
  const size_t at = file.rfind(kTorch);
  if (at == std::string_view::npos) return file == "??" || file.empty();
  const std::string_view rest = file.substr(at + kTorch.size());
  return rest.starts_with("utils/") || (rest.starts_with('_') && rest.find('/') == std::string_view::npos);
}

}  // namespace

bool is_communication(const Trace& trace, StackId id) {
  if (!id.valid() || id.index() >= trace.stacks.size()) return false;
  const Stack& stack = trace.stacks[id.index()];
  for (uint32_t i = stack.first_frame; i < stack.first_frame + stack.frame_count; ++i) {
    const Frame& frame = trace.frames[trace.stack_frames[i].index()];
    const std::string_view file = trace.strings.text(frame.file), function = trace.strings.text(frame.function);
    if (passes_on(file)) continue;
    return std::any_of(std::begin(kPlaces), std::end(kPlaces), [&](const Place& place) {
      return file.find(place.file) != std::string_view::npos && (place.function.empty() || function == place.function);
    });
  }
  return false;
}

}  // namespace gpucast
